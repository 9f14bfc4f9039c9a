//! How the numbers were made, in words, under the predecessor's keys.

use super::RunRecord;
use crate::plan::Layer;
use tokscope_shared::field::Field;
use tokscope_shared::report::extras::{Method, Methodology};

/// The four methods, each with whether this report has numbers made by it.
pub(super) fn methodology(run: &RunRecord) -> Methodology {
    let measured = |of: fn(&tokscope_shared::report::cell::Cell) -> bool| run.cells.iter().any(|measured| of(&measured.cell));
    let mut prefill = Method::entry(
        "Prefill",
        !run.prefill.is_empty(),
        "prompt_tokens / TTFT",
        "From the request that each context's first cell sends ahead of its streams: one sample, with the network and the first token in it.",
    );
    let of_layer = |layer| run.cells.iter().any(|measured| measured.layer == layer);
    let bursts = of_layer(Layer::Burst);
    let mut burst = Method::entry(
        "Burst / E2E Decode",
        bursts || run.options.request_count > 0,
        "sum(completion_tokens) / wall time",
        "A finite number of requests, with admission and prefill, that C workers take one after the other. The time goes \
         from the first request's sending to the arrival of the last token of the last one. Tokens are those of the requests \
         that finished, by the server's usage; aggregate_source says where chunks had to do. A request that fails makes the \
         cell invalid.",
    );
    if let Field::Is(Method::Entry(entry)) = &mut prefill {
        entry.mode = Field::text(run.options.prefill_mode);
    }
    if let Field::Is(Method::Entry(entry)) = &mut burst {
        let asked = bursts || run.options.request_count > 0;
        entry.status = Field::text(if asked { "present" } else { "not run; use --run-burst" });
    }
    Methodology {
        prefill,
        sustained_decode: Method::entry(
            "Sustained Decode",
            of_layer(Layer::Sustained),
            "tokens inside the window / length of the window, edge to edge",
            "C streams that restart as they finish; the window opens when all of them decode steadily and has fixed edges. \
             A token belongs to the instant at which its chunk arrived. Tokens are counted by the server's usage, \
             spread over the chunks where it comes at the end only; aggregate_source says which.",
        ),
        burst_e2e_decode: burst,
        acceptance_normalization: Method::entry(
            "Acceptance-normalized decode (MTP / speculative)",
            measured(|cell| cell.server_steps_per_s.f64().is_some_and(|steps| steps > 0.0)),
            "engine_steps = drafts + max(0, output - (accepted + drafts)); effective length = output / engine_steps; \
             steps_per_s = aggregate_tps / effective length",
            "From the server's counters between the two scrapes nearest to the window's edges. Steps are those of sequences: \
             they compare only at equal concurrency.",
        ),
        ..Methodology::default()
    }
}
