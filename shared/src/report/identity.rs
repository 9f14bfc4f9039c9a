//! Who measured what, where and when: the first lines of any view of a report.

use super::Report;

/// What identifies a run, each part only where the file has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// The model.
    pub model: Option<String>,
    /// The engine as people write it: `vLLM`, `SGLang`.
    pub engine: Option<String>,
    /// The server's version.
    pub engine_version: Option<String>,
    /// Address of the server.
    pub server: Option<String>,
    /// GPUs, as `4× NVIDIA RTX PRO 6000`; several kinds are joined by `+`.
    pub gpus: Option<String>,
    /// Driver version.
    pub driver: Option<String>,
    /// When it was saved, as written in the file.
    pub timestamp: Option<String>,
    /// Seconds of the window.
    pub duration_s: Option<f64>,
    /// The program that measured: `tokscope` or `llm_decode_bench`.
    pub tool: &'static str,
    /// Its version.
    pub tool_version: Option<String>,
    /// What the report is, in words.
    pub kind: &'static str,
}

impl Report {
    /// What identifies the run.
    pub fn identity(&self) -> Identity {
        let meta = self.metadata.get();
        let text = |value: Option<&str>| value.filter(|text| !text.is_empty()).map(str::to_owned);
        let (gpus, driver) = self.gpus();
        Identity {
            model: text(meta.and_then(|m| m.model.str())),
            engine: text(meta.and_then(|m| m.engine.str())).map(|name| engine_label(&name).to_owned()),
            engine_version: text(self.tokscope.get().and_then(|own| own.server.get()?.version.str()))
                .or_else(|| text(meta.and_then(|m| m.server_version.str())))
                .or_else(|| self.logged_version()),
            server: text(meta.and_then(|m| m.server.str())),
            gpus,
            driver,
            timestamp: text(meta.and_then(|m| m.timestamp.str())),
            duration_s: meta.and_then(|m| m.duration_per_test.f64()),
            tool: if self.is_ours() { "tokscope" } else { "llm_decode_bench" },
            tool_version: text(meta.and_then(|m| m.version.str())),
            kind: self.kind(),
        }
    }

    /// What kind of report it is, in words.
    pub fn kind(&self) -> &'static str {
        let meta = self.metadata.get();
        match meta.and_then(|m| m.mode.str()) {
            Some("completion_stats") => "profile report",
            Some("paired_comparison") => "comparison of two profile reports",
            Some("tool_eval") => "tool-use evaluation",
            Some("p2pmark_only" | "amd_fabric_only" | "p2pmark_amd_fabric_only") => "diagnostics report",
            Some(_) => "report of an unknown mode",
            None if self.cells().next().is_some() => "decode report",
            None if self.burst_results.items().next().is_some() => "burst report",
            None if self.prefill.entries().next().is_some() => "prefill report",
            None => "report without measurements",
        }
    }

    /// GPU names with their number, and the driver, from the start-up diagnostics.
    fn gpus(&self) -> (Option<String>, Option<String>) {
        let listing = self.startup_diagnostics.get().and_then(|d| d.nvidia_smi_query.get()?.stdout.str());
        let mut kinds: Vec<(String, usize)> = Vec::new();
        let mut driver = None;
        for line in listing.unwrap_or_default().lines() {
            let mut columns = line.split(',').map(str::trim);
            if let (Some(_), Some(name)) = (columns.next(), columns.next()) {
                driver = driver.or(columns.next().map(str::to_owned));
                match kinds.iter_mut().find(|(kind, _)| kind == name) {
                    Some((_, n)) => *n += 1,
                    None => kinds.push((name.to_owned(), 1)),
                }
            }
        }
        let names: Vec<String> = kinds.iter().map(|(name, n)| format!("{n}× {name}")).collect();
        ((!names.is_empty()).then(|| names.join(" + ")), driver)
    }

    /// The server's version from the log line in which the predecessor wrote it.
    fn logged_version(&self) -> Option<String> {
        self.event_log.items().find_map(|line| {
            let rest = line.split_once(" startup engine ")?.1;
            let (engine, rest) = rest.split_once(' ')?;
            let version = rest.split(" models=").next()?;
            (["vLLM", "SGLang"].contains(&engine) && version != "from metrics").then(|| version.to_owned())
        })
    }
}

/// An engine's name as people write it.
pub fn engine_label(name: &str) -> &str {
    match name {
        "vllm" => "vLLM",
        "sglang" => "SGLang",
        "llama_cpp" => "llama.cpp",
        "openai_proxy" => "OpenAI-compatible",
        other => other,
    }
}

/// A context length as people write it: `0`, `32k`, `1000`.
pub fn context_label(tokens: i64) -> String {
    if tokens >= 1024 && tokens % 1024 == 0 { format!("{}k", tokens / 1024) } else { tokens.to_string() }
}
