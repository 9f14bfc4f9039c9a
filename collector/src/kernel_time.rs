//! When the kernel received what a read returns, and what that is on the monotonic clock. The kernel stamps on
//! the realtime clock; a stamp belongs to the last byte of a read. It reads sockets and judges nothing.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt};
use rustix::time::{ClockId, clock_gettime};

use crate::clock::monotonic_ns;

/// Room for one stamp, with its header.
const CONTROL_BYTES: usize = 128;
/// A paired reading of both clocks is taken so many times; the tightest one counts.
const READINGS: usize = 5;
/// The two clocks are slewed alike, so that their distance changes by a step only. Below this it is the
/// reading's own noise.
const STEP_NS: u64 = 200_000;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes; 0 where the other side has closed.
    pub bytes: usize,
    /// When the last of them reached this machine, in nanoseconds of the realtime clock; absent where the
    /// system doesn't say.
    pub real_ns: Option<i64>,
}

/// Asks the system to stamp what this socket receives. The first bytes after it may still come without.
///
/// # Errors
/// The system doesn't know how.
pub fn enable(socket: &impl AsFd) -> io::Result<()> {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    Ok(setsockopt(&socket.as_fd(), sockopt::Timestamping, &flags)?)
}

/// Reads what is there, without waiting.
///
/// # Errors
/// As of a read: `WouldBlock` where nothing is there.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Received> {
    let mut control = [0; CONTROL_BYTES];
    let mut parts = [IoSliceMut::new(into)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let mut real_ns = None;
    // An unreadable control message is a missing stamp, no failed read.
    for part in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmTimestampsns(stamps) = part {
            let ns = stamps.system.tv_sec() * 1_000_000_000 + stamps.system.tv_nsec();
            real_ns = Some(ns).filter(|ns| *ns > 0);
        }
    }
    Ok(Received { bytes: message.bytes, real_ns })
}

/// The distance of the realtime clock from the monotonic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealClock {
    /// Realtime less monotonic, nanoseconds.
    ahead_ns: i64,
    /// Half of what passed while both were read.
    uncertain_ns: u64,
}

impl RealClock {
    /// Reads both clocks.
    #[must_use]
    pub fn read() -> Self {
        let reading = |_| {
            let before = monotonic_ns();
            let real = clock_gettime(ClockId::Realtime);
            let after = monotonic_ns();
            let real_ns = real.tv_sec * 1_000_000_000 + real.tv_nsec;
            let middle = before + (after - before) / 2;
            Self { ahead_ns: real_ns - i64::try_from(middle).unwrap_or(i64::MAX), uncertain_ns: (after - before) / 2 }
        };
        let tightest = (0..READINGS).map(reading).min_by_key(|pair| pair.uncertain_ns);
        // There is always one.
        tightest.unwrap_or(Self { ahead_ns: 0, uncertain_ns: u64::MAX })
    }

    /// A stamp of the realtime clock on the monotonic one; `None` before its start.
    #[must_use]
    pub fn monotonic_ns(&self, real_ns: i64) -> Option<u64> {
        u64::try_from(real_ns.checked_sub(self.ahead_ns)?).ok()
    }

    /// By how much the realtime clock was set between the two readings, nanoseconds; `None` if it was not.
    #[must_use]
    pub fn stepped(&self, later: &Self) -> Option<i64> {
        let step = later.ahead_ns - self.ahead_ns;
        let noise = STEP_NS.saturating_add(self.uncertain_ns).saturating_add(later.uncertain_ns);
        (step.unsigned_abs() > noise).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// The system turns stamping on in the background: bytes are sent until one comes with a stamp.
    #[test]
    fn a_read_long_after_the_arrival_tells_when_that_was() {
        let (near, mut far) = pair();
        enable(&near).unwrap();
        let mut bytes = [0; 64];
        for _ in 0..200 {
            let before = monotonic_ns();
            far.write_all(b"hello").unwrap();
            let after = monotonic_ns();
            std::thread::sleep(Duration::from_millis(20));
            let got = receive(near.as_fd(), &mut bytes).unwrap();
            assert_eq!(&bytes[..got.bytes], b"hello");
            let Some(real_ns) = got.real_ns else { continue };
            let arrived = RealClock::read().monotonic_ns(real_ns).unwrap();
            // Between the two sides of the write, but for the noise of pairing the clocks.
            assert!(before < arrived + STEP_NS && arrived < after + STEP_NS, "{before} {arrived} {after}");
            return;
        }
        panic!("no read came with a stamp");
    }

    #[test]
    fn nothing_there_and_a_closed_connection_are_told_apart() {
        let (near, far) = pair();
        let mut bytes = [0; 8];
        assert_eq!(receive(near.as_fd(), &mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(far);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(receive(near.as_fd(), &mut bytes).unwrap(), Received { bytes: 0, real_ns: None });
    }

    #[test]
    fn a_step_is_seen_and_noise_is_none() {
        let clock = RealClock { ahead_ns: 1_000_000_000, uncertain_ns: 500 };
        let later = |ahead_ns| RealClock { ahead_ns, uncertain_ns: 500 };
        assert_eq!(clock.stepped(&later(1_000_000_000)), None);
        assert_eq!(clock.stepped(&later(1_000_100_000)), None);
        assert_eq!(clock.stepped(&later(1_002_000_000)), Some(2_000_000));
        assert_eq!(clock.stepped(&later(-5)), Some(-1_000_000_005));
        assert_eq!(clock.monotonic_ns(1_000_000_007), Some(7));
        assert_eq!(clock.monotonic_ns(999), None);
    }
}
