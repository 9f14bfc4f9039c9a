//! Keys during a run: `q` ends it, `s` skips a cell. Only where a person sits at a terminal; what the terminal was
//! like before is put back however the program ends.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// Between two looks whether anybody still listens.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `q`: end the run.
    Quit,
    /// `s`: skip the cell.
    Skip,
}

impl Key {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            b'q' | b'Q' => Some(Self::Quit),
            b's' | b'S' => Some(Self::Skip),
            _ => None,
        }
    }
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Keys {
    over: Arc<AtomicBool>,
}

/// What the terminal was like.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

impl Keys {
    /// Listens on a thread of its own, where standard input, output and error are a terminal and this is the program
    /// in front of it; `None` elsewhere.
    pub fn listen(mut on_key: impl FnMut(Key) + Send + 'static) -> Option<Self> {
        if !(stdin().is_terminal() && stdout().is_terminal() && stderr().is_terminal() && in_front()) {
            return None;
        }
        key_by_key()?;
        put_back_on_panic();
        let keys = Keys { over: Arc::default() };
        let over = Arc::clone(&keys.over);
        let thread = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while !over.load(Ordering::Acquire) {
                if let Some(key) = next_key() {
                    on_key(key);
                }
            }
        });
        // Without the thread the terminal is put back as the keys are dropped.
        thread.is_ok().then_some(keys)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        put_back();
    }
}

/// Puts the terminal back as it was, where it was changed.
pub fn put_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    // From the background the terminal can't be changed, and whoever is in front has set it as it likes.
    if let Some(before) = before.filter(|_| in_front()) {
        // It may be gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// No echo, and each key at once. Ctrl-C stays a signal.
fn key_by_key() -> Option<()> {
    let before = tcgetattr(stdin()).ok()?;
    let mut now = before.clone();
    now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    now.special_codes[SpecialCodeIndex::VMIN] = 1;
    now.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(stdin(), OptionalActions::Now, &now).ok()?;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    Some(())
}

fn put_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let then = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            put_back();
            then(info);
        }));
    });
}

/// Whether the terminal is ours to read and set: a program in the background would be stopped for it.
fn in_front() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Waits a little; the key, where one of ours was pressed.
fn next_key() -> Option<Key> {
    let input = stdin();
    let mut look = [PollFd::new(&input, PollFlags::IN)];
    let ready = poll(&mut look, Some(&LOOK)).is_ok_and(|n| n > 0);
    if !ready || !in_front() {
        if ready {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        return None;
    }
    let mut byte = [0];
    match rustix::io::read(&input, &mut byte) {
        Ok(1) => Key::of(byte[0]),
        // The terminal is gone.
        _ => {
            std::thread::sleep(std::time::Duration::from_millis(200));
            None
        }
    }
}
