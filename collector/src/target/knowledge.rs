//! How an engine's answers are known to this program: a number read by the documentation alone deserves a second look.

use super::Engine;

/// What the reading of an engine rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// A real server was measured.
    Live,
    /// Real answers were recorded, and are read in tests.
    Recorded,
    /// Its documentation, and nothing else.
    Documented,
}

impl Engine {
    /// How the engine is known. Of vLLM only the V1 engine was met; `old_metrics` says that names of the V0 engine
    /// were seen.
    #[must_use]
    pub fn knowledge(self, old_metrics: bool) -> Knowledge {
        match self {
            Self::Vllm if old_metrics => Knowledge::Documented,
            Self::Vllm => Knowledge::Live,
            Self::LlamaCpp | Self::OpenaiProxy => Knowledge::Recorded,
            Self::Sglang => Knowledge::Documented,
        }
    }
}

impl Knowledge {
    /// A line of the start-up block.
    #[must_use]
    pub fn line(self, engine: Engine) -> String {
        let met = match (self, engine) {
            (Self::Live, _) => "measured live (vLLM 0.32)",
            (Self::Recorded, Engine::LlamaCpp) => "from recordings of a real server (b11434)",
            (Self::Recorded, _) => "from recordings of a real proxy (LiteLLM 1.108); others may differ",
            (Self::Documented, _) => "from its documentation only",
        };
        format!("{} is known {met}", engine.name())
    }

    /// A doubt to be told at run time, where there is one.
    #[must_use]
    pub fn doubt(self, engine: Engine) -> Option<String> {
        (self == Self::Documented).then(|| {
            let name = engine.name();
            let which = if engine == Engine::Vllm { " with the metrics of its V0 engine" } else { "" };
            format!(
                "{name}{which} is known from its documentation only, no such server was ever measured: compare its limits and metrics with its log"
            )
        })
    }
}
