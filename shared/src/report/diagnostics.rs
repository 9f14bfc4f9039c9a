//! `startup_diagnostics`, `nvidia_p2p_override`, `p2pmark`, `amd_fabric`: the machine before the run.

use crate::field::{Int, List, Num, Table, section};
use serde_json::Value;

section! {
    /// What was looked at before the server was contacted, on the client's machine.
    pub struct StartupDiagnostics {
        /// Version of the program.
        @always version: String,
        /// Full base URL.
        @always server_url: String,
        /// Name of the host.
        @always hostname: String,
        /// `uname -a`.
        @always uname: String,
        /// Environment, by allow-list.
        @always env: Table<String>,
        /// Options that were chosen.
        @always args: StartupArgs,
        /// The NVIDIA peer-to-peer override.
        @always nvidia_p2p_override: P2pOverride,
        /// The GPU peer-to-peer test.
        @always p2pmark: P2pMark,
        /// The CPU fabric test.
        @always amd_fabric: AmdFabric,
        /// GPU list.
        nvidia_smi_query: CommandRecord,
        /// GPU topology.
        nvidia_smi_topo: CommandRecord,
        /// Why there are no GPU lists.
        nvidia_smi_error: String,
    }

    /// Options repeated in the start-up diagnostics.
    pub struct StartupArgs {
        /// Levels as typed.
        concurrency: String,
        /// Contexts as typed.
        contexts: String,
        /// Output limit.
        max_tokens: Int,
        /// Seconds a window.
        duration: Num,
        /// Requests a cell.
        request_count: Int,
        /// Burst matrix.
        run_burst: bool,
        /// Prefill on its own.
        standalone_prefill: bool,
        /// Prefill only.
        prefill_only: bool,
        /// No prefill rows.
        skip_prefill: bool,
        /// Prefill contexts as typed.
        prefill_contexts: String,
        /// What prefill is measured by.
        prefill_metric: String,
        /// Context-parallel size.
        dcp_size: Int,
        /// KV budget in tokens.
        kv_budget: Int,
    }

    /// One command and what it printed.
    pub struct CommandRecord {
        /// The command.
        cmd: List<String>,
        /// Its exit status; −1 where it could not be run.
        returncode: Int,
        /// What it printed.
        stdout: String,
        /// What it complained of.
        stderr: String,
    }

    /// The driver's peer-to-peer settings against those expected.
    pub struct P2pOverride {
        /// `not_run` where it was not looked at.
        status: String,
        /// Whether all expected settings are in effect.
        effective: bool,
        /// Whether the module's configuration names them.
        configured: bool,
        /// Path of the driver's parameters.
        params_path: String,
        /// Whether they could be read.
        params_available: bool,
        /// Path of the module's configuration.
        modprobe_path: String,
        /// Whether it could be read.
        modprobe_available: bool,
        /// Settings in effect.
        runtime: Table<String>,
        /// Settings expected.
        expected: Table<String>,
        /// Expected settings that are not set.
        missing: List<String>,
        /// Settings with another value.
        mismatched: Table<Mismatch>,
        /// The driver's registry words as they are.
        registry_dwords: String,
        /// Line for the module's configuration.
        suggested_modprobe_line: String,
        /// What to do after changing it.
        suggested_reload: String,
    }

    /// A setting that is not as expected.
    pub struct Mismatch {
        /// Expected.
        expected: String,
        /// In effect.
        actual: String,
    }

    /// The GPU peer-to-peer test.
    pub struct P2pMark {
        /// `not_run`, `missing_binary`, `ok`, `failed`, `timeout` or `error`.
        status: String,
        /// Path of the helper.
        binary: String,
        /// What was tested.
        mode: String,
        /// The command.
        cmd: List<String>,
        /// Its exit status.
        returncode: Int,
        /// What it printed.
        stdout: String,
        /// What it complained of.
        stderr: String,
        /// Seconds it took.
        elapsed_seconds: Num,
        /// Its results.
        data: P2pData,
        /// Why its results could not be read.
        parse_error: String,
        /// Whether details were asked for.
        detail: bool,
        /// What went wrong.
        error: String,
        /// What to do.
        suggestion: String,
        /// Seconds it was given.
        timeout_seconds: Num,
    }

    /// Results of the GPU peer-to-peer test; matrices are [from][to].
    pub struct P2pData {
        /// Name of the helper.
        tool: String,
        /// Its version.
        version: Int,
        /// GPUs visible.
        visible_gpu_count: Int,
        /// GPUs tested.
        gpu_count: Int,
        /// Whether some were left out.
        gpu_count_clamped: bool,
        /// What was tested.
        mode: String,
        /// Buffer in MB.
        size_mb: Int,
        /// Repetitions.
        iters: Int,
        /// Discarded repetitions.
        warmup: Int,
        /// Repetitions of the latency test.
        latency_iters: Int,
        /// Whether a GPU reaches another's memory.
        peer_access: List<List<Int>>,
        /// Copy bandwidth in GB/s.
        bandwidth_gbps: List<List<Num>>,
        /// Mean, least and most of the bandwidths between GPUs.
        bandwidth_summary: Table<Num>,
        /// Bandwidths of many pairs at once.
        bandwidth_topology: Value,
        /// Read latencies in µs.
        latency: Value,
        /// All-reduce by size.
        allreduce: List<AllReduce>,
    }

    /// One size of the all-reduce test.
    pub struct AllReduce {
        /// Bytes.
        size_bytes: Int,
        /// µs of the custom kernel.
        custom_us: Num,
        /// µs of NCCL.
        nccl_us: Num,
        /// Bus bandwidth of the custom kernel in GB/s.
        custom_bus_bw_gbps: Num,
        /// Bus bandwidth of NCCL in GB/s.
        nccl_bus_bw_gbps: Num,
        /// The better of both.
        best_bus_bw_gbps: Num,
        /// `custom` or `nccl`.
        winner: String,
        /// Slower by faster.
        ratio: Num,
    }

    /// The CPU fabric test.
    pub struct AmdFabric {
        /// As in the GPU peer-to-peer test.
        status: String,
        /// Path of the helper.
        binary: String,
        /// The machine's layout.
        topology: FabricTopology,
        /// The command.
        cmd: List<String>,
        /// Its exit status.
        returncode: Int,
        /// What it printed.
        stdout: String,
        /// What it complained of.
        stderr: String,
        /// Seconds it took.
        elapsed_seconds: Num,
        /// Its results.
        data: FabricData,
        /// Why its results could not be read.
        parse_error: String,
        /// Whether details were asked for.
        detail: bool,
        /// What went wrong.
        error: String,
        /// What to do.
        suggestion: String,
        /// Seconds it was given.
        timeout_seconds: Num,
    }

    /// Layout of a CPU machine.
    pub struct FabricTopology {
        /// CPU model.
        cpu_model: String,
        /// Product name of the system.
        system_product: String,
        /// Product name of the board.
        board_product: String,
        /// Distances of NUMA nodes.
        node_distances: List<List<Int>>,
        /// CPUs of each node.
        node_cpulists: Value,
        /// System management port values.
        hsmp: Hsmp,
        /// Counter slots of the data fabric.
        data_fabric_perf_link_counter_slots: List<Int>,
        /// Links between sockets.
        xgmi: Xgmi,
    }

    /// System management port values, as text; empty where absent.
    pub struct Hsmp {
        /// Whether it could be read.
        available: bool,
        /// Protocol version.
        protocol_version: String,
        /// Firmware version.
        smu_fw_version: String,
        /// Fabric clock in MHz.
        fclk_mhz: String,
        /// Memory clock in MHz.
        mclk_mhz: String,
        /// Highest memory bandwidth in GB/s.
        ddr_max_bw_gbps: String,
    }

    /// Links between sockets.
    pub struct Xgmi {
        /// Active links reported; null where nothing reports them.
        reported_active_links: Int,
        /// Links expected.
        expected_links: String,
        /// Where that was read.
        source: String,
        /// A remark.
        note: String,
    }

    /// Results of the CPU fabric test; matrices are [cpu node][memory node].
    pub struct FabricData {
        /// Name of the helper.
        tool: String,
        /// Its version.
        version: Int,
        /// NUMA nodes.
        numa_nodes: Int,
        /// Buffer in MB.
        size_mb: Int,
        /// Buffer of the latency test in MB.
        latency_mb: Int,
        /// Repetitions.
        iters: Int,
        /// Discarded repetitions.
        warmup: Int,
        /// Threads a node.
        threads_per_node: Int,
        /// Repetitions of the latency test.
        latency_iters: Int,
        /// CPUs of each node.
        node_cpus: List<List<Int>>,
        /// Distances of nodes.
        distance: List<List<Int>>,
        /// Read bandwidth in GB/s.
        read_gbps: List<List<Num>>,
        /// Write bandwidth in GB/s.
        write_gbps: List<List<Num>>,
        /// Copy bandwidth in GB/s.
        copy_gbps: List<List<Num>>,
        /// Latency in µs.
        latency_us: List<List<Num>>,
        /// Both directions at once: read in GB/s.
        bidirectional_remote_read_gbps: Num,
        /// Both directions at once: write in GB/s.
        bidirectional_remote_write_gbps: Num,
        /// Both directions at once: copy in GB/s.
        bidirectional_remote_copy_gbps: Num,
    }
}
