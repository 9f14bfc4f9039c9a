//! Whoever wants a run to end: Ctrl-C, the system, a key. Once, the cell under way is cut and what was measured is
//! written; twice, nobody is waited for any more; three times, the program ends with what is on the disk.

use crate::load::stop::Stopper;
use crate::output::hold_still;
use crate::ui::complain;
use crate::ui::keys::{Key, Keys, put_back};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What was asked.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// Once more, by Ctrl-C.
    More,
    /// Once, however often it is said.
    Once,
    /// Skip the cell.
    Skip,
}

/// Listens until it is dropped; then the terminal is as it was before.
#[derive(Debug)]
pub struct Listening {
    tasks: Vec<JoinHandle<()>>,
    _keys: Option<Keys>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Listens, and tells `stopper`.
pub fn listen(stopper: Stopper) -> Listening {
    let (sender, mut asks) = mpsc::unbounded_channel();
    let by_key = sender.clone();
    let keys = Keys::listen(move |key| {
        // Nobody listens any more once the run is over.
        let _ = by_key.send(if key == Key::Quit { Ask::Once } else { Ask::Skip });
    });
    let mut tasks = signals(&sender);
    tasks.push(tokio::spawn(async move {
        let mut times = 0;
        while let Some(ask) = asks.recv().await {
            match ask {
                Ask::Skip => stopper.skip(),
                Ask::Once if times > 0 => {}
                Ask::Once | Ask::More => {
                    times += 1;
                    end(times, &stopper);
                }
            }
        }
    }));
    Listening { tasks, _keys: keys }
}

fn end(times: u32, stopper: &Stopper) {
    match times {
        1 => {
            complain("tokscope: stopping; what was measured is kept (Ctrl-C once more to wait for nothing)");
            stopper.stop();
        }
        2 => {
            complain("tokscope: stopping at once (Ctrl-C once more to quit without a report)");
            stopper.stop_at_once();
        }
        _ => {
            put_back();
            hold_still();
            std::process::exit(130);
        }
    }
}

/// Whether the terminal may go, as under `nohup`: then its going ends nothing.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// From here on these signals end nothing by themselves.
fn signals(to: &mpsc::UnboundedSender<Ask>) -> Vec<JoinHandle<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    // A file that may not grow further is an error of its writing, as on a full disk, and no end of the program. Whoever
    // listens once has it so for good.
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    let kinds = [(SignalKind::interrupt(), Ask::More), (SignalKind::terminate(), Ask::Once)];
    let hangup = (!is_hangup_ignored()).then_some((SignalKind::hangup(), Ask::Once));
    let listeners = kinds.into_iter().chain(hangup).filter_map(|(kind, ask)| Some((signal(kind).ok()?, ask)));
    listeners
        .map(|(mut signal, ask)| {
            let to = to.clone();
            tokio::spawn(async move { while signal.recv().await.is_some() && to.send(ask).is_ok() {} })
        })
        .collect()
}
