//! `hardware_summary` and `hardware_run_summary`: the machine over a window.

use crate::field::{Int, Num, section};

section! {
    /// The machine over a window; all keys are absent where nothing was sampled.
    pub struct Hardware {
        /// Samples taken.
        samples: Int,
        /// Seconds from the first to the last sample.
        duration_seconds: Num,
        /// GPUs seen.
        gpu_count: Int,
        /// Mean CPU use in per cent.
        cpu_util_avg_pct: Num,
        /// Highest CPU temperature in °C.
        cpu_temp_max_c: Num,
        /// Mean GPU use in per cent.
        gpu_util_avg_pct: Num,
        /// Highest GPU use in per cent.
        gpu_util_max_pct: Num,
        /// Mean memory-controller use in per cent.
        mem_util_avg_pct: Num,
        /// Highest memory-controller use in per cent.
        mem_util_max_pct: Num,
        /// Mean GPU temperature in °C.
        temp_avg_c: Num,
        /// Highest GPU temperature in °C.
        temp_max_c: Num,
        /// Mean power of all GPUs in watts.
        power_total_avg_w: Num,
        /// Highest power of all GPUs in watts.
        power_total_max_w: Num,
        /// Sum of the power limits in watts.
        power_limit_total_w: Num,
        /// Mean GPU memory used in MiB.
        vram_used_avg_mb: Num,
        /// Most GPU memory used in MiB.
        vram_used_max_mb: Num,
        /// GPU memory in MiB.
        vram_total_mb: Num,
        /// Mean GPU memory used in per cent.
        vram_used_avg_pct: Num,
        /// Most GPU memory used in per cent.
        vram_used_max_pct: Num,
        /// Mean PCIe traffic to the GPUs in MB/s.
        pcie_rx_avg_mb_s: Num,
        /// Highest PCIe traffic to the GPUs in MB/s.
        pcie_rx_max_mb_s: Num,
        /// Mean PCIe traffic from the GPUs in MB/s.
        pcie_tx_avg_mb_s: Num,
        /// Highest PCIe traffic from the GPUs in MB/s.
        pcie_tx_max_mb_s: Num,
    }
}
