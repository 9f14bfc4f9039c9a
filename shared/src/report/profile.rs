//! Profile reports (`metadata.mode` = `completion_stats`) and what is compared of them: answers, not speed.

use crate::field::{Int, List, Num, Table, section};
use serde_json::Value;

section! {
    /// One answer.
    pub struct ProfileRun {
        /// Number of the run, from 1.
        run_index: Int,
        /// `probe`, `collect`, `profile` or `prefill_scout`.
        phase: String,
        /// Requests at once.
        concurrency: Int,
        /// Whether some output arrived.
        ok: bool,
        /// Whether the answer is right; null where it wasn't judged.
        correct: bool,
        /// Generated tokens.
        completion_tokens: Int,
        /// Prompt tokens.
        prompt_tokens: Int,
        /// Seconds of the request.
        elapsed: Num,
        /// Seconds from the first to the last text.
        gen_elapsed: Num,
        /// Seconds to the first token.
        ttft: Num,
        /// Seconds from the first to the second chunk.
        time_to_second_token: Num,
        /// Tokens a second while generating.
        gen_tok_s: Num,
        /// Tokens a second over the request.
        e2e_tok_s: Num,
        /// Why it ended.
        finish_reason: String,
        /// The line that was scored.
        final_answer: String,
        /// The score.
        score_label: String,
        /// The score in words.
        score_detail: String,
        /// The answer as read.
        parsed_answer: Value,
        /// Begin of the output.
        output_excerpt: String,
        /// The whole output.
        output_text: String,
        /// The reasoning.
        reasoning_text: String,
        /// The answer.
        content_text: String,
        /// What went wrong.
        error: String,
        /// Whether the output limit ended it.
        hit_max_tokens: bool,
        /// Whether chunks were counted as tokens.
        estimated_tokens: bool,
        /// Whether it was cut.
        cancelled: bool,
        /// Item of the data set.
        item_id: String,
        /// Category of the item.
        category: String,
        /// The right answer.
        expected_answer: Value,
    }

    /// Statistics over a set of answers.
    pub struct ProfileSummary {
        /// Runs begun.
        attempted: Int,
        /// Runs with output.
        completed: Int,
        /// Runs without output.
        errors: Int,
        /// Right answers.
        correct: Int,
        /// Wrong answers.
        wrong: Int,
        /// Answers by score.
        score_counts: Table<Int>,
        /// Exact answers.
        exact: Int,
        /// Near answers.
        near: Int,
        /// Failed answers.
        fail: Int,
        /// Answers cut by the output limit.
        truncated: Int,
        /// Share of right answers among those judged.
        correct_rate: Num,
        /// The same without cut ones.
        correct_rate_completed: Num,
        /// Whether answers were judged.
        score_available: bool,
        /// Runs that reached the output limit.
        hit_max_tokens: Int,
        /// Runs whose tokens are chunks.
        estimated_token_runs: Int,
        /// Generated tokens.
        completion_tokens: Spread,
        /// Seconds to the first token.
        ttft: Spread,
        /// Seconds of the request.
        elapsed: Spread,
        /// Seconds of generating.
        gen_elapsed: Spread,
        /// Tokens a second while generating.
        gen_tok_s: Spread,
        /// Tokens a second over the request.
        e2e_tok_s: Spread,
        /// Tokens by seconds of generating, summed over streams: a speed of one stream.
        aggregate_gen_tok_s: Num,
        /// Tokens by seconds of requests, summed over streams: a speed of one stream.
        aggregate_e2e_tok_s: Num,
    }

    /// A distribution in seven numbers.
    pub struct Spread {
        /// Mean.
        avg: Num,
        /// Smallest.
        min: Num,
        /// Largest.
        max: Num,
        /// Median.
        p50: Num,
        /// 90th percentile.
        p90: Num,
        /// 99th percentile.
        p99: Num,
        /// Standard deviation.
        std: Num,
    }

    /// One level of the search for a concurrency.
    pub struct LevelSummary {
        /// Requests at once.
        concurrency: Int,
        /// Phase of the search.
        phase: String,
        /// What came out.
        summary: ProfileSummary,
        /// Whether it was taken.
        selected: bool,
        /// Whether it was better than the level before.
        improved: bool,
    }

    /// Accuracy on a data set.
    pub struct Accuracy {
        /// Items of the data set.
        items_total: Int,
        /// Items asked.
        items_selected: Int,
        /// Items tried.
        attempted: Int,
        /// Items judged.
        scored: Int,
        /// Right answers.
        correct: Int,
        /// Share of right answers among those judged.
        accuracy: Num,
        /// Lower end of the 95 % Wilson interval.
        wilson95_low: Num,
        /// Upper end of the 95 % Wilson interval.
        wilson95_high: Num,
        /// Answers that could not be read.
        unparseable: Int,
        /// Answers cut before they came.
        truncated_no_answer: Int,
        /// Runs that reached the output limit.
        hit_max_tokens: Int,
        /// Runs that failed.
        errors: Int,
        /// Whether every item was asked.
        dataset_exhausted: bool,
    }

    /// Accuracy of one category.
    pub struct CategorySummary {
        /// Its name.
        category: String,
        /// Items judged.
        scored: Int,
        /// Right answers.
        correct: Int,
        /// Share of right answers.
        accuracy: Num,
    }

    /// Two profile reports side by side.
    pub struct Comparison {
        /// Why they could not be compared.
        error: String,
        /// Identity of the baseline.
        baseline: Value,
        /// Identity of the candidate.
        candidate: Value,
        /// Items in both.
        paired_items: Int,
        /// Items judged in the baseline.
        baseline_scored_items: Int,
        /// Items judged in the candidate.
        candidate_scored_items: Int,
        /// Whether the profile is the same.
        profile_match: bool,
        /// Whether the data set is the same.
        dataset_match: bool,
        /// Whether the prompt is the same.
        prompt_match: bool,
        /// Whether the scorer is the same.
        scorer_match: bool,
        /// Right answers of the baseline.
        baseline_correct: Int,
        /// Right answers of the candidate.
        candidate_correct: Int,
        /// Accuracy of the baseline.
        baseline_accuracy: Num,
        /// Accuracy of the candidate.
        candidate_accuracy: Num,
        /// Interval of the baseline.
        baseline_wilson95: List<Num>,
        /// Interval of the candidate.
        candidate_wilson95: List<Num>,
        /// Difference in percentage points.
        delta_pp: Num,
        /// Items right only in the baseline.
        flips_baseline_only_correct: Int,
        /// Items right only in the candidate.
        flips_candidate_only_correct: Int,
        /// Those items.
        flip_item_ids: Value,
        /// Exact two-sided McNemar p.
        mcnemar_exact_p: Num,
        /// Whether p is below 0.05.
        significant_at_0_05: bool,
        /// Generated tokens of both.
        completion_tokens: Value,
        /// Runs at the output limit of both.
        hit_max_tokens: Value,
        /// Unreadable answers of both.
        unparseable: Value,
        /// Cut answers of both.
        truncated_no_answer: Value,
        /// The same by category.
        per_category: List<Value>,
    }
}
