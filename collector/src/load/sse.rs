//! Server-sent events on bytes, by the standard: lines end with LF, CR or CRLF wherever a read
//! splits them, one space after the colon is optional, several `data` lines make one event, other
//! fields and comments are passed over. Nothing is decoded here, and no byte is looked at twice.
//!
//! Unlike the standard, an event that the end of the stream leaves open is delivered: servers do
//! end without a blank line, and the last tokens count.

use memchr::memchr2;

/// More than any event of a sane server.
const MAX_EVENT_BYTES: usize = 64 << 20;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// An event grew beyond all measure.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event of the stream is longer than {} MB", MAX_EVENT_BYTES >> 20)]
pub struct TooLong;

/// Finds the events in a stream of bytes.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The part of a line that earlier reads brought.
    line: Vec<u8>,
    /// `data` of the open event that could not be kept as a slice.
    data: Vec<u8>,
    /// Whether the open event has a `data` line.
    open: bool,
    /// A CR ended the last read: an LF at the start of the next one belongs to it.
    skip_lf: bool,
    /// Past the place where a byte order mark may stand.
    started: bool,
}

impl SseParser {
    /// A parser at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Back at the start, with its buffers kept.
    pub fn reset(&mut self) {
        self.line.clear();
        self.data.clear();
        (self.open, self.skip_lf, self.started) = (false, false, false);
    }

    /// Takes what a read brought and hands the data of each event that it completes to `event`.
    ///
    /// # Errors
    /// [`TooLong`] if an event exceeds 64 MB.
    pub fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut rest = bytes;
        if self.skip_lf && !rest.is_empty() {
            self.skip_lf = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        // The only `data` line so far of the open event, if it lies in this read.
        let mut held: Option<&[u8]> = None;
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, after) = rest.split_at(end);
            rest = match after {
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => after,
            };
            self.skip_lf = after == b"\r";
            if self.line.is_empty() {
                let line = self.without_bom(line);
                self.take_line(line, &mut held, &mut event);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                // It lives in our buffer, not in this read: it can't be held.
                self.keep(held.take());
                let mut own = None;
                self.take_line(self.bom_length(&whole).map_or(&whole[..], |n| &whole[n..]), &mut own, &mut event);
                self.started = true;
                self.keep(own);
                whole.clear();
                self.line = whole;
            }
        }
        self.keep(held);
        self.line.extend_from_slice(rest);
        if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
            return Err(TooLong);
        }
        Ok(())
    }

    /// The stream is over: delivers an event that it left open.
    pub fn finish(&mut self, mut event: impl FnMut(&[u8])) {
        let mut line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            let mut held = None;
            let start = self.bom_length(&line).unwrap_or(0);
            self.take_line(&line[start..], &mut held, &mut event);
            self.keep(held);
        }
        if self.open {
            event(&self.data);
        }
        // Ready for the next stream, which finds its memory there.
        line.clear();
        self.data.clear();
        *self = Self { line, data: std::mem::take(&mut self.data), ..Self::default() };
    }

    fn bom_length(&self, line: &[u8]) -> Option<usize> {
        (!self.started && line.starts_with(BOM)).then_some(BOM.len())
    }

    fn without_bom<'a>(&mut self, line: &'a [u8]) -> &'a [u8] {
        let start = self.bom_length(line).unwrap_or(0);
        self.started = true;
        &line[start..]
    }

    /// `held` is the open event's data as long as it is one line of the current read.
    fn take_line<'a>(&mut self, line: &'a [u8], held: &mut Option<&'a [u8]>, event: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if self.open {
                event(held.take().unwrap_or(&self.data));
                self.data.clear();
                self.open = false;
            }
            return;
        }
        let value = match line {
            b"data" => &[],
            [b'd', b'a', b't', b'a', b':', b' ', value @ ..] | [b'd', b'a', b't', b'a', b':', value @ ..] => value,
            _ => return,
        };
        if self.open {
            self.keep(held.take());
            self.data.push(b'\n');
            self.data.extend_from_slice(value);
        } else {
            self.open = true;
            *held = Some(value);
        }
    }

    fn keep(&mut self, held: Option<&[u8]>) {
        if let Some(held) = held {
            self.data.extend_from_slice(held);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut parser = SseParser::new();
        let mut out = Vec::new();
        let mut push = |data: &[u8]| out.push(String::from_utf8(data.to_vec()).unwrap());
        for piece in pieces {
            parser.feed(piece, &mut push).unwrap();
        }
        parser.finish(&mut push);
        out
    }

    /// The same whatever a read splits it into: whole, in two at every place, byte by byte.
    fn same_everywhere(stream: &[u8], want: &[&str]) {
        assert_eq!(events(&[stream]), want, "whole");
        for at in 0..=stream.len() {
            let (a, b) = stream.split_at(at);
            assert_eq!(events(&[a, b]), want, "split after byte {at}");
            assert_eq!(events(&[a, &[], b]), want, "with an empty read after {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(events(&bytes), want, "byte by byte");
    }

    #[test]
    fn every_line_end_ends_a_line() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = "data: a\n\ndata: b\ndata: c\n\n: hi\n\ndata:d\n\n".replace('\n', end);
            same_everywhere(stream.as_bytes(), &["a", "b\nc", "d"]);
        }
        same_everywhere(b"data: a\r\n\ndata: b\n\r\ndata: c\r\r", &["a", "b", "c"]);
    }

    #[test]
    fn one_space_is_optional_and_a_second_one_is_data() {
        same_everywhere(b"data:a\n\ndata: b\n\ndata:  c\n\n", &["a", "b", " c"]);
    }

    #[test]
    fn other_fields_comments_and_blank_lines_are_passed_over() {
        same_everywhere(b"event: x\nid: 1\nretry: 5\n: c\ndatax: no\n\n\n\nevent: y\ndata: a\nid\n\n", &["a"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_data_at_the_start_and_data_later() {
        same_everywhere(b"\xEF\xBB\xBFdata: a\n\n", &["a"]);
        same_everywhere(b"\n\xEF\xBB\xBFdata: a\n\ndata: b\n\n", &["b"]);
    }

    #[test]
    fn an_event_that_the_end_leaves_open_is_delivered() {
        same_everywhere(b"data: a\n\ndata: b\n", &["a", "b"]);
        same_everywhere(b"data: a\n\ndata: b", &["a", "b"]);
        same_everywhere(b"data: a\n\ndata: b\ndata: c", &["a", "b\nc"]);
    }

    #[test]
    fn an_empty_data_line_is_an_event_and_no_data_line_is_none() {
        same_everywhere(b"data\n\nevent: x\n\ndata:\ndata\n\n", &["", "\n"]);
    }

    #[test]
    fn a_character_may_be_split_between_reads() {
        same_everywhere("data: \u{1f600}\u{e9}\n\n".as_bytes(), &["\u{1f600}\u{e9}"]);
    }

    #[test]
    fn a_parser_begins_anew_after_the_end() {
        let (mut parser, mut seen) = (SseParser::new(), Vec::new());
        for stream in [&b"\xEF\xBB\xBFdata: a\r"[..], b"\ndata: b", b"\xEF\xBB\xBFdata: c"] {
            parser.feed(stream, |data| seen.push(data.to_vec())).unwrap();
            parser.finish(|data| seen.push(data.to_vec()));
        }
        assert_eq!(seen, [b"a", b"b", b"c"]);
    }

    #[test]
    fn unicode_line_separators_end_no_line() {
        same_everywhere("data: a\u{2028}b\u{85}c\n\n".as_bytes(), &["a\u{2028}b\u{85}c"]);
    }

    #[test]
    fn a_hundred_events_in_one_read_are_a_hundred() {
        let stream: String = (0..100).map(|i| format!("data: {i}\n\n")).collect();
        let got = events(&[stream.as_bytes()]);
        assert_eq!(got.len(), 100);
        assert_eq!(got[99], "99");
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = SseParser::new();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..100).any(|_| parser.feed(&piece, |_| {}).is_err());
        assert!(refused);
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(
            stream in "(data: ?[a-c]{0,3}|data|:x|id: 1|\u{feff}|)(\n|\r|\r\n)((data: ?[a-c]{0,3}|data|:x|)(\n|\r|\r\n)){0,8}",
            cuts in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }
    }
}
