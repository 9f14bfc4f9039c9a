//! The head of an HTTP/1.1 answer: status, and how its body ends.

use super::body::Framing;

/// Longest head.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// What came is no answer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadHead {
    /// What came is no HTTP.
    #[error("the answer is not HTTP/1.1 ({0})")]
    NotHttp(String),
    /// The head never ends.
    #[error("the answer's headers are longer than {} kB", MAX_HEAD >> 10)]
    Endless,
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// Status.
    pub status: u16,
    /// `content-type`, or empty.
    pub content_type: String,
    /// `content-encoding`, or empty; we ask for none.
    pub encoding: String,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the server will take another request on this connection.
    pub keep_alive: bool,
}

impl AnswerHead {
    /// The head and its length, if all of it is there; interim answers (1xx) are passed over and
    /// are part of the length.
    ///
    /// # Errors
    /// What is there is no HTTP, or too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadHead> {
        let mut start = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut parsed = httparse::Response::new(&mut headers);
            let status = parsed.parse(&bytes[start..]).map_err(|e| BadHead::NotHttp(e.to_string()))?;
            let httparse::Status::Complete(length) = status else {
                return if bytes.len() >= MAX_HEAD { Err(BadHead::Endless) } else { Ok(None) };
            };
            start += length;
            let head = read(&parsed)?;
            if !(100..200).contains(&head.status) {
                return Ok(Some((head, start)));
            }
        }
    }
}

fn read(parsed: &httparse::Response<'_, '_>) -> Result<AnswerHead, BadHead> {
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(found.value).trim().to_ascii_lowercase())
    };
    let status = parsed.code.unwrap_or_default();
    let chunked = header("transfer-encoding").is_some_and(|v| v.ends_with("chunked"));
    let framing = match header("content-length") {
        _ if chunked => Framing::chunked(),
        _ if status == 204 || status == 304 => Framing::Length(0),
        Some(text) => Framing::Length(text.parse().map_err(|_| BadHead::NotHttp("content-length is no number, or too large".into()))?),
        None => Framing::UntilClose,
    };
    let connection = header("connection").unwrap_or_default();
    let http_1_1 = parsed.version == Some(1);
    Ok(AnswerHead {
        status,
        content_type: header("content-type").unwrap_or_default(),
        encoding: header("content-encoding").filter(|encoding| encoding != "identity").unwrap_or_default(),
        keep_alive: framing != Framing::UntilClose && !connection.contains("close") && (http_1_1 || connection.contains("keep-alive")),
        framing,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn head(text: &str) -> AnswerHead {
        AnswerHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn how_the_body_ends_and_whether_the_connection_stays_are_read() {
        let h = head("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Type: Text/Event-Stream\r\n\r\n");
        assert_eq!((h.framing, h.keep_alive, h.content_type.as_str()), (Framing::chunked(), true, "text/event-stream"));
        let h = head("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
        assert_eq!((h.framing, h.keep_alive), (Framing::Length(5), false));
        let h = head("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert!(!h.keep_alive, "HTTP/1.0 closes unless it says otherwise");
        let h = head("HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!((h.framing, h.keep_alive), (Framing::UntilClose, false));
    }

    #[test]
    fn interim_answers_are_passed_over_and_half_a_head_is_none_yet() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\nrest";
        let (h, length) = AnswerHead::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((h.status, &text[length..]), (204, "rest"));
        for end in 0..text.len() - "\r\n\r\nrest".len() {
            assert_eq!(AnswerHead::parse(&text.as_bytes()[..end]).unwrap(), None, "{end}");
        }
    }

    #[test]
    fn what_is_no_http_and_what_never_ends_is_refused() {
        assert!(matches!(AnswerHead::parse(b"SSH-2.0-x\r\n"), Err(BadHead::NotHttp(_))));
        assert!(AnswerHead::parse(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").is_err());
        let endless = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MAX_HEAD));
        assert_eq!(AnswerHead::parse(endless.as_bytes()), Err(BadHead::Endless));
    }
}
