//! Ordinary events of each kind of server, framed as they come from a socket. Shared with the benchmarks.

use std::hint::black_box;

use super::load::body::Framing;
use super::load::chunk::{self, ChunkReader};
use super::load::sse::SseParser;
use super::load::text::{TextWriter, Whose};

/// What a read of a socket may bring at once.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Long enough for the beginning not to count.
const BODY_BYTES: usize = 1 << 20;

/// Events of one server.
pub(crate) struct Ordinary {
    pub(crate) server: &'static str,
    pub(crate) events: Vec<Vec<u8>>,
    /// The same events as a chunked body, an event a chunk.
    pub(crate) body: Vec<u8>,
}

impl Ordinary {
    fn new(server: &'static str, recorded: &[Vec<u8>]) -> Self {
        let (mut events, mut body) = (Vec::new(), Vec::new());
        for data in recorded.iter().cycle() {
            if body.len() > BODY_BYTES {
                break;
            }
            body.extend_from_slice(format!("{:x}\r\ndata: ", data.len() + 8).as_bytes());
            body.extend_from_slice(data);
            body.extend_from_slice(b"\n\n\r\n");
            events.push(data.clone());
        }
        body.extend_from_slice(b"0\r\n\r\n");
        Self { server, events, body }
    }

    /// Bytes of all events, without their framing.
    pub(crate) fn event_bytes(&self) -> usize {
        self.events.iter().map(Vec::len).sum()
    }
}

/// From recordings; of SGLang in the form in which it writes them.
pub(crate) fn all() -> Vec<Ordinary> {
    let sglang: Vec<Vec<u8>> = [" def", "\\n    ", " return", "x", " zahlen\u{fc}ber", "\\\"a\\\""]
        .iter()
        .enumerate()
        .map(|(n, text)| {
            format!(
                r#"{{"id":"3f0c2f6d8a9b4c1e8d7f6a5b4c3d2e1f","object":"chat.completion.chunk","created":1796174248,"model":"tiny-llama","choices":[{{"index":0,"delta":{{"role":null,"content":"{text}","reasoning_content":null,"tool_calls":null}},"logprobs":null,"finish_reason":null,"matched_stop":null}}],"usage":{{"prompt_tokens":13,"total_tokens":{},"completion_tokens":{n},"prompt_tokens_details":null,"reasoning_tokens":0}}}}"#,
                13 + n
            )
            .into_bytes()
        })
        .collect();
    vec![
        Ordinary::new("vllm", &recorded("vllm/stream-usage-long")),
        Ordinary::new("sglang", &sglang),
        Ordinary::new("litellm", &recorded("litellm/stream-usage-long")),
        Ordinary::new("llama.cpp", &recorded("llama-server/stream-continuous-usage")),
    ]
}

/// The events of a recording that carry output.
fn recorded(name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/fixtures/transcripts/{name}.response.http", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let (mut framing, mut sse, mut events) = (Framing::chunked(), SseParser::new(), Vec::new());
    let mut rest = &bytes[head + 4..];
    while !rest.is_empty() && !framing.is_done() {
        let (used, payload) = framing.take(rest).unwrap();
        let keep = |data: &[u8]| {
            if chunk::parse(data).is_ok_and(|chunk| chunk.kinds.is_output()) {
                events.push(data.to_vec());
            }
        };
        sse.feed(payload, keep).unwrap();
        rest = &rest[used..];
    }
    assert!(events.len() > 5, "{name}");
    events
}

/// Reads a body as the program does without the guard against repetitions; how many events had output.
pub(crate) fn pipeline(body: &[u8]) -> usize {
    keeping(body, None)
}

/// The same, with the texts kept.
pub(crate) fn keeping(body: &[u8], mut text: Option<&mut TextWriter>) -> usize {
    let (mut framing, mut sse, mut reader) = (Framing::chunked(), SseParser::new(), ChunkReader::new());
    let mut outputs = 0;
    for read in body.chunks(READ_BYTES) {
        let mut rest = read;
        while !rest.is_empty() && !framing.is_done() {
            let (used, payload) = framing.take(rest).unwrap();
            let on_event = |data: &[u8]| {
                let Some(chunk) = Some(data).filter(|data| !chunk::is_done(data)).and_then(|data| reader.read(data).ok()) else { return };
                let chunk = black_box(chunk);
                outputs += usize::from(chunk.kinds.is_output());
                if let Some(text) = text.as_deref_mut() {
                    let whose = Whose { t_us: outputs as u64, stream: 0, request: 0, tokens: None };
                    text.keep(whose, chunk.content, chunk.reasoning);
                }
            };
            sse.feed(payload, on_event).unwrap();
            rest = &rest[used..];
        }
    }
    outputs
}

/// Reads events one by one, each without knowing the others.
pub(crate) fn stateless(events: &[Vec<u8>]) -> usize {
    events.iter().filter(|data| chunk::parse(data).is_ok_and(|chunk| black_box(chunk).kinds.is_output())).count()
}

/// Reads events of one stream.
pub(crate) fn stateful(events: &[Vec<u8>]) -> usize {
    let mut reader = ChunkReader::new();
    events.iter().filter(|data| reader.read(data).is_ok_and(|chunk| black_box(chunk).kinds.is_output())).count()
}

/// Reads events as trees, and looks at nothing in them.
pub(crate) fn trees(events: &[Vec<u8>]) -> usize {
    events.iter().filter(|data| serde_json::from_slice::<serde_json::Value>(data).is_ok_and(|tree| black_box(tree).is_object())).count()
}

/// Nanoseconds that each job takes: the least of several rounds, in each of which every job has its turn, so
/// that whatever else the machine does meets all of them.
pub(crate) fn least_ns<const N: usize>(rounds: usize, jobs: [&dyn Fn() -> usize; N]) -> [f64; N] {
    let mut least = [f64::INFINITY; N];
    for _ in 0..rounds {
        for (job, least) in jobs.iter().zip(&mut least) {
            // The thread's own time: what others do on the machine is not in it.
            let start_us = tokscope_collector::clock::thread_cpu_us();
            black_box(job());
            let took_us = tokscope_collector::clock::thread_cpu_us() - start_us;
            *least = least.min(took_us.max(1) as f64 * 1e3);
        }
    }
    least
}
