//! The bare reader: sends the same requests, then waits, reads and counts bytes until the answers end. It looks
//! at nothing but the last five bytes of an answer: what it costs, no client can save.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read, retry_on_intr};

use super::server::{Requests, Server};
use super::{Job, Used, on_cpu};
use crate::clock::{monotonic_ns, thread_cpu_us};

const READ_BYTES: usize = 64 << 10;
/// Nothing at all for this long, and it is given up.
const SILENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
const CONNECT: Duration = Duration::from_secs(20);
/// How the last chunk of an answer ends: no other read of such an answer can.
const END: [u8; 5] = *b"0\r\n\r\n";

struct Stream {
    socket: TcpStream,
    /// Requests still to be sent, the next one last.
    requests: Vec<Vec<u8>>,
    tail: [u8; 5],
}

pub(super) async fn run(server: &Server, job: Job) -> Result<Used, String> {
    let requests = Requests::new(server, job);
    let address: SocketAddr = format!("{}:{}", server.address.host(), server.address.port())
        .parse()
        .map_err(|_| "the simulator has no address in numbers".to_owned())?;
    let requests: Vec<Vec<Vec<u8>>> =
        (0..job.streams).map(|stream| (0..job.requests).rev().map(|ordinal| requests.bytes(stream, ordinal)).collect()).collect();
    on_cpu(job.cpu, move || read_all(address, requests).map_err(|error| format!("its connection broke ({error}); run it again"))).await
}

fn read_all(address: SocketAddr, requests: Vec<Vec<Vec<u8>>>) -> std::io::Result<Used> {
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams = Vec::with_capacity(requests.len());
    for (at, requests) in (0..).zip(requests) {
        let socket = TcpStream::connect_timeout(&address, CONNECT)?;
        socket.set_nodelay(true)?;
        epoll::add(&queue, &socket, epoll::EventData::new_u64(at), epoll::EventFlags::IN)?;
        streams.push(Stream { socket, requests, tail: [0; 5] });
    }
    let mut buffer = vec![0; READ_BYTES];
    let mut ready = Vec::with_capacity(streams.len());
    let mut open = streams.len();
    let mut bytes = 0;
    let (start_ns, start_cpu_us) = (monotonic_ns(), thread_cpu_us());
    for stream in &mut streams {
        stream.ask()?;
    }
    while open > 0 {
        ready.clear();
        let found = retry_on_intr(|| epoll::wait(&queue, rustix::buffer::spare_capacity(&mut ready), Some(&SILENCE)))?;
        if found == 0 {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "30 s of silence"));
        }
        for event in &ready {
            let Some(stream) = streams.get_mut(event.data.u64() as usize) else { continue };
            let count = match read(&stream.socket, &mut buffer[..]) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            bytes += count as u64;
            if stream.ends_with(&buffer[..count]) && !stream.ask()? {
                open -= 1;
            }
        }
    }
    let cpu_us = thread_cpu_us() - start_cpu_us;
    let span_us = (monotonic_ns() - start_ns) / 1_000;
    Ok(Used { cpu_us, span_us, bytes, ..Used::default() })
}

impl Stream {
    /// Sends the next request; says whether there was one.
    fn ask(&mut self) -> std::io::Result<bool> {
        match self.requests.pop() {
            Some(request) => self.socket.write_all(&request).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether an answer ends with what was read.
    fn ends_with(&mut self, read: &[u8]) -> bool {
        match read.last_chunk::<5>() {
            Some(tail) => self.tail = *tail,
            None => {
                self.tail.rotate_left(read.len());
                self.tail[5 - read.len()..].copy_from_slice(read);
            }
        }
        self.tail == END
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answers_end_is_seen_however_it_is_split() {
        let answer = b"HTTP/1.1 200 OK\r\nvary: Origin\r\n\r\na\r\ndata: {}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = Stream { socket, requests: Vec::new(), tail: [0; 5] };
        for size in 1..=answer.len() {
            let pieces: Vec<&[u8]> = answer.chunks(size).collect();
            let seen: Vec<bool> = pieces.iter().map(|piece| stream.ends_with(piece)).collect();
            let (last, before) = seen.split_last().unwrap();
            assert!(*last && before.iter().all(|end| !end), "pieces of {size}");
        }
    }
}
