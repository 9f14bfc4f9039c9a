//! A client that knows nothing but bytes.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokscope_collector::simulator::{self, Running, Settings, Truth};

pub(crate) fn quick() -> Settings {
    Settings {
        model: "tiny-llama".to_owned(),
        max_context: 8192,
        kv_tokens: 65_536,
        block_tokens: 16,
        prefill_tok_s: 1e6,
        request_overhead_us: 500.0,
        step_base_us: 2_000.0,
        step_per_sequence_us: 0.0,
        empty_share: 0.0,
        ..Settings::default()
    }
}

pub(crate) fn start(settings: Settings) -> Running {
    simulator::start(settings, ([127, 0, 0, 1], 0).into()).unwrap()
}

pub(crate) fn connect(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(running.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The events of a stream, `[DONE]` left out but required.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        let mut events: Vec<_> = text.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        events.iter().map(|e| serde_json::from_str(e.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}

pub(crate) fn read_until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end) {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes
}

/// Reads one response and not a byte more.
pub(crate) fn read_reply(stream: &mut impl Read) -> Reply {
    let head = String::from_utf8(read_until(stream, b"\r\n\r\n")).unwrap();
    let names = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if names.contains("transfer-encoding: chunked") {
        loop {
            let size = String::from_utf8(read_until(stream, b"\r\n")).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).unwrap();
            assert!(chunk.ends_with(b"\r\n"));
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        let length = names.split("content-length: ").nth(1).unwrap();
        body.resize(length.split("\r\n").next().unwrap().parse().unwrap(), 0);
        stream.read_exact(&mut body).unwrap();
    }
    Reply { status: head[9..12].parse().unwrap(), head, body }
}

pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

pub(crate) fn get(running: &Running, path: &str) -> Reply {
    let mut stream = connect(running);
    stream.write_all(&request("GET", path, "", "")).unwrap();
    read_reply(&mut stream)
}

pub(crate) fn chat_body(content: &str, max_tokens: u32) -> String {
    json!({
        "model": "tiny-llama", "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
    })
    .to_string()
}

pub(crate) fn send_chat(running: &Running, id: &str, body: &str) -> TcpStream {
    let mut stream = connect(running);
    let headers = format!("x-request-id: {id}\r\n");
    stream.write_all(&request("POST", "/v1/chat/completions", &headers, body)).unwrap();
    stream
}

pub(crate) fn chat(running: &Running, id: &str, body: &str) -> Reply {
    read_reply(&mut BufReader::new(send_chat(running, id, body)))
}

pub(crate) fn post(running: &Running, path: &str, body: &str) -> Reply {
    let mut stream = connect(running);
    stream.write_all(&request("POST", path, "", body)).unwrap();
    read_reply(&mut stream)
}

pub(crate) fn truth(running: &Running) -> Truth {
    serde_json::from_value(get(running, "/simulator/truth").json()).unwrap()
}

/// The first series of that name.
pub(crate) fn metric(running: &Running, name: &str) -> f64 {
    series(running, name).remove(0).1
}

/// All series of exactly that name: labels as they stand, and value.
pub(crate) fn series(running: &Running, name: &str) -> Vec<(String, f64)> {
    let page = String::from_utf8(get(running, "/metrics").body).unwrap();
    let lines = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        let (labels, value) = rest.rsplit_once(' ').unwrap();
        Some((labels.to_owned(), value.parse().unwrap()))
    });
    let found: Vec<_> = lines.collect();
    assert!(!found.is_empty(), "no {name}");
    found
}

/// Waits for something that must come; how long it takes is not the point.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
