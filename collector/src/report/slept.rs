//! A cell during which the machine slept: no clock of the cell is worth anything then.

use tokscope_shared::field::{Field, List};
use tokscope_shared::report::cell::Cell;
use tokscope_shared::report::own::ReasonOwn;
use tokscope_shared::verdict;

/// Takes the cell's rate away and says why.
pub(crate) fn slept(cell: &mut Cell, slept_us: u64) {
    let text = format!("the machine slept for {:.1} s while the cell was measured", slept_us as f64 / 1e6);
    cell.aggregate_tps = Field::Null;
    cell.per_request_avg_tps = Field::Null;
    cell.failure_reason = Field::text(&text);
    let Field::Is(own) = &mut cell.tokscope else { return };
    let reason = |code: &str, text: &str| ReasonOwn { code: Field::text(code), text: Field::text(text), ..ReasonOwn::default() };
    let with_it = List(vec![Field::Is(reason("slept", &text))]);
    own.reasons = Field::Is(with_it);
    let judgement = verdict::judge(cell);
    if let Field::Is(own) = &mut cell.tokscope {
        own.verdict = Field::text(judgement.verdict.name());
        own.reasons = Field::Is(judgement.reasons.iter().map(|found| reason(&found.code, &found.text)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokscope_shared::report::own::CellOwn;

    #[test]
    fn a_cell_in_which_the_machine_slept_has_no_rate_and_one_reason() {
        let own = CellOwn { verdict: Field::text("valid"), ..CellOwn::default() };
        let mut cell = Cell {
            concurrency: Field::int(1),
            context_tokens: Field::int(0),
            aggregate_tps: Field::num(50.0),
            num_errors: Field::int(1),
            tokscope: Field::Is(own),
            ..Cell::default()
        };
        slept(&mut cell, 90_000_000);
        assert_eq!((&cell.aggregate_tps, cell.failure_reason.str().map(|text| text.contains("90.0 s"))), (&Field::Null, Some(true)));
        let judgement = verdict::judge(&cell);
        assert_eq!(judgement.verdict, verdict::Verdict::Invalid);
        assert_eq!(judgement.reasons.iter().filter(|reason| reason.verdict == verdict::Verdict::Invalid).count(), 1, "{judgement:?}");
    }
}
