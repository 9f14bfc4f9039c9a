//! Threads on a CPU of their own, so that who is measured and who answers don't take turns on one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A thread can't be put on that CPU.
#[derive(Debug, thiserror::Error)]
#[error("cannot run on CPU {cpu} ({cause}); give one of {allowed:?}")]
pub struct PinError {
    cpu: usize,
    cause: std::io::Error,
    allowed: Vec<usize>,
}

/// CPUs that the calling thread may run on, in rising order; empty where the system doesn't say.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    allowed.map_or_else(|_| Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Keeps the calling thread, and those it starts from now on, on this CPU.
///
/// # Errors
/// There is no such CPU, or it isn't for us.
pub fn pin_thread(cpu: usize) -> Result<(), PinError> {
    let refused = |cause| PinError { cpu, cause, allowed: allowed_cpus() };
    if cpu >= CpuSet::MAX_CPU {
        return Err(refused(std::io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| refused(error.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pinned_thread_stays_there_and_so_do_its_children() {
        let last = *allowed_cpus().last().unwrap();
        let child = std::thread::spawn(move || {
            pin_thread(last).unwrap();
            std::thread::spawn(allowed_cpus).join().unwrap()
        });
        assert_eq!(child.join().unwrap(), [last]);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named_with_those_that_are() {
        for cpu in [CpuSet::MAX_CPU - 1, usize::MAX] {
            let error = pin_thread(cpu).unwrap_err().to_string();
            assert!(error.contains(&format!("CPU {cpu}")) && error.contains("give one of [0"), "{error}");
        }
    }
}
