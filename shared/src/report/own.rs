//! The two `tokscope` sections: what only Tokscope records, of a run and of a cell.

use super::cell::Cell;
use crate::field::{Field, Int, List, Num, section};
use crate::stats::Histogram;
use serde_json::Value;

section! {
    /// What only Tokscope records of a run. A file with `schema` here is a report measured by Tokscope.
    pub struct RunOwn {
        /// Version of this shape.
        @always schema: Int,
        /// `complete`, `interrupted` or `failed`.
        @always status: String,
        /// Twelve letters that every prompt of the run carries; after a resume, of its first stretch.
        @always run_id: String,
        /// Begin, RFC 3339 with offset.
        @always started: String,
        /// End, RFC 3339 with offset.
        @always ended: String,
        /// Every effective option.
        @always options: Value,
        /// The server.
        @always server: ServerOwn,
        /// The client.
        @always client: ClientOwn,
        /// Cells that were planned and not run.
        @always left_out: List<LeftOut>,
        /// What happened, on the run's clock.
        @always events: List<RunEvent>,
        /// Columns over the run.
        @always series: RunSeries,
        /// All repeats of all cells.
        @always repeats: List<Repeat>,
        /// What the rows of `prefill` do not say.
        @always prefill: List<PrefillOwn>,
        /// Cells of the open loop: requests due by a schedule.
        @always open_loop: List<Cell>,
        /// What was measured when, after a resume.
        @always segments: List<Segment>,
        /// The user's own prompts; absent where prompts were made.
        dataset: Dataset,
    }

    /// A file of the user's own prompts.
    pub struct Dataset {
        /// The file, as it was named.
        file: String,
        /// SHA-256 of its bytes.
        sha256: String,
        /// Prompts in it.
        prompts: Int,
        /// Prompts sent from it, one after the other, also before a burst is measured; more than there are where it was begun
        /// anew.
        used: Int,
    }

    /// The server as it described itself.
    pub struct ServerOwn {
        /// Engine.
        @always engine: String,
        /// Version; null where it doesn't tell.
        @always version: String,
        /// Limits, each with where it was read.
        @always limits: List<Limit>,
        /// What it refused of what was to be sent, each in a sentence.
        @always refused: List<String>,
        /// Whether it keeps the beginnings of prompts.
        @always prefix_cache: PrefixCache,
    }

    /// Whether the server keeps the beginnings of prompts, as was tried before the run.
    pub struct PrefixCache {
        /// `works`, `does not` or `unknown`.
        @always finding: String,
        /// How that is known, in a sentence.
        @always evidence: String,
        /// Tokens of the prompt tried that were kept; null where the server doesn't tell.
        @always shared_tokens: Int,
    }

    /// One limit of the server.
    pub struct Limit {
        /// `context_tokens`, `kv_tokens`, `running_requests`.
        @always name: String,
        /// The value; null where it is unknown.
        @always value: Int,
        /// Where it was read.
        @always source: String,
    }

    /// The measuring side.
    pub struct ClientOwn {
        /// Nanoseconds of the system's monotonic clock when the run's clock stood at 0.
        @always origin_ns: Int,
        /// The server's address as resolved.
        @always address: String,
        /// Which instant a chunk's arrival is: `kernel` (its receipt by the kernel), `read` (the read) or `mixed` (it differs by cell).
        @always stamp: String,
        /// CPUs the client could use.
        @always cpus: Int,
        /// The client's own error, measured before the run; empty where it wasn't.
        @always calibration: List<Calibration>,
    }

    /// The client against a built-in server whose true times are known, at one concurrency.
    pub struct Calibration {
        /// Streams at once.
        @always concurrency: Int,
        /// Tokens that the server put into a chunk.
        @always tokens_per_chunk: Int,
        /// Requests compared: the sample of the time to the first token.
        @always requests: Int,
        /// Gaps between chunks compared: the sample of the time by token.
        @always gaps: Int,
        /// Tokens that the server handed over.
        @always tokens: Int,
        /// Tokens counted less tokens handed over.
        @always tokens_off: Int,
        /// µs between the time to the first token as measured and the true one, request by request; median.
        @always ttft_off_p50_us: Num,
        /// The same, 99th percentile.
        @always ttft_off_p99_us: Num,
        /// µs between the time by token as measured and the true one, request by request; median.
        @always itl_off_p50_us: Num,
        /// The same, 99th percentile.
        @always itl_off_p99_us: Num,
        /// µs by which the server itself wrote later than it meant to, 99th percentile.
        @always server_late_p99_us: Num,
        /// µs by which the client's 2 ms tick was late meanwhile, 99th percentile.
        @always tick_late_p99_us: Num,
    }

    /// A cell that was planned and not run.
    pub struct LeftOut {
        /// `sustained_decode` or `prefill`.
        @always layer: String,
        /// Context length in tokens.
        @always context_tokens: Int,
        /// Streams at once; null for prefill.
        @always concurrency: Int,
        /// Why, as a code.
        @always code: String,
        /// Tokens that were missing.
        @always missing_tokens: Int,
        /// Why, in words.
        @always text: String,
    }

    /// Something that happened.
    pub struct RunEvent {
        /// µs on the run's clock.
        @always t_us: Int,
        /// What kind.
        @always kind: String,
        /// In words.
        @always text: String,
    }

    /// Columns over the run: the server's own metrics at each scrape.
    pub struct RunSeries {
        /// µs on the run's clock when the answer was complete.
        scrape_t_us: List<Int>,
        /// µs the scrape took.
        scrape_took_us: List<Int>,
        /// Requests running.
        running: List<Num>,
        /// Requests waiting.
        waiting: List<Num>,
        /// KV cache in use, 0 to 1.
        kv_usage: List<Num>,
        /// Tokens generated since the server's start.
        generation_tokens: List<Num>,
    }

    /// One row of `prefill`.
    pub struct PrefillOwn {
        /// Context length in tokens.
        @always context_tokens: Int,
        /// Whether the server had to compute the whole prompt.
        @always cold: bool,
        /// Prompt tokens from the prefix cache; null where the server doesn't tell.
        @always cached_tokens: Int,
        /// Why there is no rate; null where there is one.
        @always reason: String,
    }

    /// One repeat of a cell.
    pub struct Repeat {
        /// Number, from 1.
        repeat: Int,
        /// Place in the order of execution, from 0.
        order: Int,
        /// Part of the matrix: `sustained_decode`, `burst_e2e_decode` or `open_loop`.
        layer: String,
        /// The cell.
        cell: Cell,
    }

    /// A stretch of a resumed run.
    pub struct Segment {
        /// Begin, RFC 3339 with offset.
        started: String,
        /// End, RFC 3339 with offset; of one that was killed, when it last wrote its checkpoint.
        ended: String,
        /// Twelve letters that the prompts of this stretch carry.
        run_id: String,
        /// Nanoseconds of the system's monotonic clock when the run's clock stood at 0, in this stretch.
        origin_ns: Int,
        /// The cells measured in it, by their place in the order of execution.
        cells: List<Int>,
    }

    /// What only Tokscope records of a cell.
    pub struct CellOwn {
        /// `valid`, `suspect`, `limited` or `invalid`, as judged when it was measured.
        @always verdict: String,
        /// Why.
        @always reasons: List<ReasonOwn>,
        /// µs for which the server had had nothing of this run to do when the cell began: it may be slower after a long
        /// rest. Null where nothing had been sent before.
        @always idle_before_us: Int,
        /// The window on the run's clock.
        @always window: Window,
        /// The whole of the load, its beginning and its end included; null where no token came.
        @always whole: Whole,
        /// The client meanwhile.
        @always client: CellClient,
        /// What the server counted beside what was counted here.
        @always reconciled: Reconciled,
        /// The prompts.
        @always prompt: Prompt,
        /// Distributions of what fell into the window.
        @always distributions: Distributions,
        /// The schedule and what became of it; null where requests were not due by one.
        @always open_loop: OpenLoop,
        /// State of the machine; null where nothing was sampled.
        @always machine: Value,
        /// Columns of the cell.
        @always series: CellSeries,
    }

    /// A reason as it was judged.
    pub struct ReasonOwn {
        /// The code.
        @always code: String,
        /// In words.
        @always text: String,
    }

    /// The window. Its edges are fixed; the first belongs to it, the last doesn't.
    pub struct Window {
        /// µs on the run's clock.
        @always start_us: Int,
        /// µs on the run's clock.
        @always end_us: Int,
        /// µs from the first stream's first request to the last one's.
        @always start_spread_us: Int,
        /// Seconds between the two scrapes that the server's rate rests on; null where there are none.
        @always server_seconds: Num,
    }

    /// All of a cell's load, to stand beside the window: how far the average over everything is from the steady state.
    pub struct Whole {
        /// The first request was sent, µs on the run's clock.
        @always start_us: Int,
        /// The last token of all came, µs on the run's clock.
        @always end_us: Int,
        /// Tokens of all requests.
        @always tokens: Int,
        /// Tokens a second from start to end; null where a stream failed.
        @always tps: Num,
    }

    /// Server and client between the same two instants; null where the server has no counters.
    pub struct Reconciled {
        /// Seconds between the two scrapes.
        @always seconds: Num,
        /// Tokens by the server's counter.
        @always server_tokens: Int,
        /// Tokens counted here.
        @always client_tokens: Int,
        /// Streams asked for.
        @always asked: Int,
        /// Mean of the requests that the server ran.
        @always running_mean: Num,
        /// Prompt tokens by the server's counter.
        server_prompt_tokens: Int,
        /// Prompt tokens of all requests from here that the server may have counted meanwhile, those that were cut included.
        client_prompt_tokens: Int,
    }

    /// The client over a cell: whether it could keep up.
    pub struct CellClient {
        /// µs by which a 2 ms tick was late, median.
        @always tick_late_p50_us: Num,
        /// The same, 99th percentile.
        @always tick_late_p99_us: Num,
        /// The same, most.
        @always tick_late_max_us: Num,
        /// Ticks behind these numbers.
        @always ticks: Int,
        /// CPU time of the load threads in µs; null where the system doesn't tell.
        @always load_cpu_us: Int,
        /// µs from the first stream's start to the last one's end, over which ticks and CPU time were taken.
        @always span_us: Int,
        /// Threads that read the streams.
        @always load_threads: Int,
        /// Connections opened.
        @always connections_opened: Int,
        /// Requests sent on a connection that had carried one before.
        @always connections_reused: Int,
        /// Requests sent.
        @always requests_sent: Int,
        /// Bytes of streams received.
        @always bytes_received: Int,
        /// Events received.
        @always events_received: Int,
        /// Which instant a chunk's arrival is: `kernel` (its receipt by the kernel) or `read` (the read).
        @always stamp: String,
        /// Why it isn't the kernel's; null where it is.
        @always stamp_reason: String,
        /// The part of `load_cpu_us` that the ticks took.
        @always tick_cpu_us: Int,
        /// Bytes of streams received a second, over `span_us`.
        @always bytes_per_s: Num,
        /// Events received a second, over `span_us`.
        @always events_per_s: Num,
        /// Kept connections that the server had closed by the time the next request was due.
        @always connections_stale: Int,
        /// µs for which bytes lay in the kernel before they were read, median; null without its stamps.
        @always queue_delay_p50_us: Num,
        /// The same, 99th percentile.
        @always queue_delay_p99_us: Num,
        /// The same, most.
        @always queue_delay_max_us: Num,
        /// Reads of sockets.
        @always reads: Int,
        /// Events passed over because they could not be read.
        @always bad_events: Int,
        /// CPU time of the busiest load thread by `span_us`, 0 to 1.
        @always busy_share: Num,
        /// The client's own error at this concurrency, measured before the run; null where it wasn't.
        @always calibration: Calibration,
    }

    /// The prompts of a cell.
    pub struct Prompt {
        /// `shared`, `distinct`, `identical` or `dataset`.
        @always mode: String,
        /// Tokens asked for; null where prompts were the user's own.
        @always target_tokens: Int,
        /// Tokens that the prompts were made to have, as the server counted them before; null where they were the user's own.
        @always tokens: Int,
        /// How those were counted: `tokenize`, `probe`, `probe-ratio`, `assumed` or `estimate`; `usage` where only those of
        /// the cell's requests are known.
        @always counted_by: String,
        /// Requests of the cell of which the server told the prompt's tokens.
        counted: Int,
        /// The fewest of these tokens; null where it told none.
        tokens_min: Num,
        /// Their mean.
        tokens_mean: Num,
        /// The most.
        tokens_max: Num,
        /// Output limit sent with each request.
        @always max_tokens: Int,
        /// Output limit asked for, where the model's context didn't allow it.
        max_tokens_asked: Int,
        /// Seconds to the first token of the request sent ahead; null where none was.
        scout_ttft_s: Num,
        /// Prompt tokens of that request that came from the prefix cache; null where the server doesn't tell.
        scout_cached_tokens: Int,
        /// Share of the prompt tokens of the cell's requests that came from the prefix cache, 0 to 1; null where the
        /// server doesn't tell.
        cached_share: Num,
    }

    /// Requests that were due by a schedule, whatever the server did.
    pub struct OpenLoop {
        /// Requests a second asked for.
        @always asked_per_s: Num,
        /// How the gaps were made: `constant` or `poisson`.
        @always arrivals: String,
        /// Requests of the schedule.
        @always scheduled: Int,
        /// Of them: sent.
        @always sent: Int,
        /// Never begun: no connection was free until answers were given up.
        @always unsent: Int,
        /// Answered to the end.
        @always finished: Int,
        /// Ended with an error.
        @always failed: Int,
        /// Unanswered when answers were given up.
        @always cut: Int,
        /// Sent more than 50 ms after they were due.
        @always late: Int,
        /// The schedule's requests by its length: the rate asked for, in whole requests.
        @always scheduled_per_s: Num,
        /// Requests sent, by the time until the last one was sent, the schedule's length at least.
        @always sent_per_s: Num,
        /// Requests answered to the end, by the time until the last token of all, the schedule's length at least.
        @always finished_per_s: Num,
        /// Tokens of these requests by the same time.
        @always goodput_tps: Num,
        /// Connections, and so the most requests that could be under way.
        @always connections: Int,
        /// Most that were under way.
        @always most_in_flight: Int,
        /// Seconds after the schedule's end for which answers were waited for.
        @always answer_limit_s: Num,
        /// Whether some were still missing then.
        @always answer_limit_reached: bool,
        /// From due to sent, of all requests sent.
        @always schedule_delay_s: Distribution,
        /// From due to the first token, of all requests with one.
        @always ttft_from_due_s: Distribution,
        /// From due to the last token, of all requests that were answered to the end.
        @always latency_from_due_s: Distribution,
    }

    /// Distributions, in seconds.
    pub struct Distributions {
        /// To the first token, of requests whose first token fell into the window.
        @always ttft_s: Distribution,
        /// Between chunks with text inside the window.
        @always chunk_gap_s: Distribution,
        /// The same by token: a chunk's gap shared by its tokens.
        @always itl_s: Distribution,
        /// Of requests that finished inside the window.
        @always request_latency_s: Distribution,
    }

    /// One distribution; percentiles are null where the sample is too small for them.
    pub struct Distribution {
        /// Sample size.
        @always n: Int,
        /// Smallest.
        @always min: Num,
        /// Mean.
        @always mean: Num,
        /// Median.
        @always p50: Num,
        /// 90th percentile.
        @always p90: Num,
        /// 95th percentile.
        @always p95: Num,
        /// 99th percentile.
        @always p99: Num,
        /// Largest.
        @always max: Num,
        /// Lower bounds of the histogram's buckets that hold values, in µs, so that distributions can be added up.
        @always bucket_us: List<Int>,
        /// Values in each of these buckets.
        @always bucket_n: List<Int>,
    }

    /// Columns of a cell.
    pub struct CellSeries {
        /// Tokens in each whole second of the window; the part of a second at its end is left out.
        @always tokens_per_s: List<Int>,
        /// The requests.
        @always requests: RequestColumns,
        /// A sample of whole requests, arrival by arrival.
        @always arrivals: Arrivals,
    }

    /// A sample of whole requests, each arrival of them. The lists by arrival hold one request after the other.
    pub struct Arrivals {
        /// Requests with arrivals: what the sample was drawn from.
        @always requests_total: Int,
        /// Of each request in the sample: its place in the columns of `requests`.
        @always request: List<Int>,
        /// Of each: how many arrivals it has.
        @always arrivals: List<Int>,
        /// Of each: the first arrival, in µs on the run's clock.
        @always start_us: List<Int>,
        /// Of each arrival: µs since the one before; 0 for a request's first.
        @always gap_us: List<Int>,
        /// Of each arrival: tokens counted at it.
        @always tokens: List<Int>,
    }

    /// The requests of a cell, as columns; times in µs on the run's clock.
    pub struct RequestColumns {
        /// The id that the request carried.
        @always id: List<String>,
        /// Its stream.
        @always stream: List<Int>,
        /// When it was due.
        @always due_us: List<Int>,
        /// When it was sent.
        @always sent_us: List<Int>,
        /// When its last byte was written.
        @always written_us: List<Int>,
        /// When the first byte of the answer came.
        @always first_byte_us: List<Int>,
        /// First text, reasoning or tool call.
        @always first_token_us: List<Int>,
        /// Last one.
        @always last_token_us: List<Int>,
        /// When the answer ended, or was given up.
        @always ended_us: List<Int>,
        /// Chunks with text.
        @always chunks: List<Int>,
        /// Tokens.
        @always tokens: List<Int>,
        /// Tokens inside the window.
        @always window_tokens: List<Num>,
        /// Prompt tokens.
        @always prompt_tokens: List<Int>,
        /// Prompt tokens from the prefix cache.
        @always cached_tokens: List<Int>,
        /// `finished`, `cut-by-us`, `truncated`, `in-stream-error`, `http`, `connect`, `timeout`, `stalled`.
        @always class: List<String>,
        /// Why the server ended it, in its own word; null where it gave none.
        @always finish_reason: List<String>,
        /// What went wrong.
        @always error: List<String>,
    }
}

impl Distribution {
    /// The histogram of the values in µs; `None` where the file has none, or one that isn't whole.
    pub fn histogram(&self) -> Option<Histogram> {
        let whole = |field: &Field<Int>| u64::try_from(field.i64()?).ok();
        let (bounds, counts) = (&self.bucket_us.get()?.0, &self.bucket_n.get()?.0);
        let buckets: Option<Vec<_>> = bounds.iter().zip(counts).map(|(us, n)| Some((whole(us)?, whole(n)?))).collect();
        Histogram::from_buckets(buckets.filter(|_| bounds.len() == counts.len())?)
    }
}
