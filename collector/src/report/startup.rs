//! `startup_diagnostics`: the client's machine and the options, under the predecessor's keys. The environment
//! is taken by name from a list, so that no secret in it can reach a file.

use super::RunRecord;
use tokscope_shared::field::{Field, Table};
use tokscope_shared::report::diagnostics::{AmdFabric, P2pMark, P2pOverride, StartupArgs, StartupDiagnostics};

/// Variables that change how fast a model is served and can't hold a secret.
const ENVIRONMENT: &[&str] = &[
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "NCCL_ALGO",
    "NCCL_CUMEM_ENABLE",
    "NCCL_IB_DISABLE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "OMP_NUM_THREADS",
    "SGLANG_ENABLE_TORCH_COMPILE",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_USE_V1",
    "VLLM_WORKER_MULTIPROC_METHOD",
];

pub(super) fn diagnostics(run: &RunRecord) -> StartupDiagnostics {
    let system = rustix::system::uname();
    let parts = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
    let words: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    let options = &run.options;
    let listed = |values: Vec<String>| Field::text(values.join(","));
    let env: Table<String> = ENVIRONMENT.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    StartupDiagnostics {
        version: Field::text(env!("CARGO_PKG_VERSION")),
        server_url: Field::text(&run.server.url),
        hostname: Field::text(system.nodename().to_string_lossy()),
        uname: Field::text(words.join(" ")),
        env: Field::Is(env),
        args: Field::Is(StartupArgs {
            concurrency: listed(options.concurrency.iter().map(ToString::to_string).collect()),
            contexts: listed(options.contexts.iter().map(|n| crate::event::context_label(*n)).collect()),
            max_tokens: Field::int(options.max_tokens),
            duration: Field::num(options.duration),
            request_count: Field::int(options.request_count),
            run_burst: Field::Is(options.run_burst),
            standalone_prefill: Field::Is(options.standalone_prefill),
            prefill_only: Field::Is(options.prefill_only),
            skip_prefill: Field::Is(options.skip_prefill),
            prefill_contexts: listed(options.prefill_contexts.iter().map(|n| crate::event::context_label(*n)).collect()),
            prefill_metric: Field::text(options.prefill_metric),
            dcp_size: Field::int(options.dcp_size.unwrap_or(0)),
            kv_budget: Field::count(options.kv_budget.unwrap_or(0)),
            ..StartupArgs::default()
        }),
        nvidia_p2p_override: Field::Is(P2pOverride { status: Field::text("not_run"), ..P2pOverride::default() }),
        p2pmark: Field::Is(P2pMark { status: Field::text("not_run"), ..P2pMark::default() }),
        amd_fabric: Field::Is(AmdFabric { status: Field::text("not_run"), ..AmdFabric::default() }),
        ..StartupDiagnostics::default()
    }
}
