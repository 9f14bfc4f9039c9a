//! Where an HTTP/1.1 answer's body ends: by its length, by chunks, or by the connection. It hands
//! out the payload as slices of what a read brought and copies nothing.

/// The body is not framed as HTTP/1.1 demands.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the answer's chunks are malformed")]
pub struct BadChunks;

/// How the end is known.
#[derive(Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Chunked),
    /// When the connection closes.
    UntilClose,
}

/// Where in the chunked coding we are.
#[derive(Debug, PartialEq, Eq)]
pub enum Chunked {
    /// In the size line: what was read of it, and whether a digit was.
    Size {
        /// Size so far.
        size: u64,
        /// Hexadecimal digits so far.
        digits: u8,
    },
    /// In an extension behind the size, which is passed over.
    Extension {
        /// Size read before it.
        size: u64,
    },
    /// So many bytes of payload are still to come.
    Data(u64),
    /// At the line end behind the payload.
    DataEnd,
    /// In the trailer: whether its current line is empty so far.
    Trailer {
        /// Empty so far.
        empty: bool,
    },
    /// Past the end.
    Done,
}

impl Framing {
    /// A chunked body from its start.
    #[must_use]
    pub fn chunked() -> Self {
        Self::Chunked(Chunked::Size { size: 0, digits: 0 })
    }

    /// Whether the body is complete. One that ends with the connection never says so.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked::Done))
    }

    /// Takes the front of `input` and returns how much of it was used and the payload found, if
    /// any; to be called again with the rest until it uses nothing or the body is done.
    ///
    /// # Errors
    /// [`BadChunks`].
    pub fn take<'a>(&mut self, input: &'a [u8]) -> Result<(usize, &'a [u8]), BadChunks> {
        match self {
            Self::UntilClose => Ok((input.len(), input)),
            Self::Length(left) => {
                let n = at_most(*left, input.len());
                *left -= n as u64;
                Ok((n, &input[..n]))
            }
            Self::Chunked(state) => state.take(input),
        }
    }
}

fn at_most(left: u64, here: usize) -> usize {
    usize::try_from(left).map_or(here, |left| left.min(here))
}

impl Chunked {
    fn take<'a>(&mut self, input: &'a [u8]) -> Result<(usize, &'a [u8]), BadChunks> {
        let mut used = 0;
        if let Some((length, size)) = self.usual_size_line(input) {
            *self = Self::Data(size);
            used = length;
        }
        while let Some(&b) = input.get(used) {
            match self {
                Self::Done => break,
                Self::Data(left) => {
                    let n = at_most(*left, input.len() - used);
                    *left -= n as u64;
                    let payload = &input[used..used + n];
                    if *left == 0 {
                        *self = Self::DataEnd;
                    }
                    return Ok((used + n, payload));
                }
                _ => self.step(b)?,
            }
            used += 1;
        }
        Ok((used, &[]))
    }

    /// The size line of a payload as servers write it (no extension, CRLF), if all of it is here: its length and
    /// the size. Whatever else stands there is read by [`Self::step`], to the same end.
    #[inline]
    fn usual_size_line(&self, input: &[u8]) -> Option<(usize, u64)> {
        let line = match self {
            Self::DataEnd => input.strip_prefix(b"\r\n")?,
            Self::Size { digits: 0, .. } => input,
            _ => return None,
        };
        let mut size = 0;
        for (digits, b) in line.iter().enumerate().take(16) {
            let digit = match b {
                b'0'..=b'9' => b - b'0',
                b'a'..=b'f' => b - b'a' + 10,
                b'A'..=b'F' => b - b'A' + 10,
                b'\r' if size > 0 && line.get(digits + 1) == Some(&b'\n') => {
                    return Some((input.len() - line.len() + digits + 2, size));
                }
                _ => return None,
            };
            size = size * 16 + u64::from(digit);
        }
        None
    }

    /// One byte outside of a payload. A lone LF passes for a line end.
    fn step(&mut self, b: u8) -> Result<(), BadChunks> {
        let line_end = |size, digits| match (size, digits) {
            (_, 0) => Err(BadChunks),
            (0, _) => Ok(Self::Trailer { empty: true }),
            (size, _) => Ok(Self::Data(size)),
        };
        *self = match (&*self, b) {
            (Self::Size { size, digits }, b'\n') => line_end(*size, *digits)?,
            (Self::Size { size, digits: 1.. }, b';' | b' ' | b'\t' | b'\r') => Self::Extension { size: *size },
            (Self::Size { size, digits }, b) => {
                let digit = char::from(b).to_digit(16).ok_or(BadChunks)?;
                if *digits == 15 {
                    return Err(BadChunks);
                }
                Self::Size { size: size * 16 + u64::from(digit), digits: digits + 1 }
            }
            (Self::Extension { size }, b'\n') => line_end(*size, 1)?,
            (Self::DataEnd, b'\n') => Self::Size { size: 0, digits: 0 },
            (Self::DataEnd, b'\r') | (Self::Extension { .. } | Self::Trailer { .. }, b'\r') => {
                return Ok(());
            }
            (Self::Extension { .. }, _) => return Ok(()),
            (Self::Trailer { empty: true }, b'\n') => Self::Done,
            (Self::Trailer { .. }, b) => Self::Trailer { empty: b == b'\n' },
            (Self::DataEnd | Self::Data(_) | Self::Done, _) => return Err(BadChunks),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), BadChunks> {
        let mut framing = Framing::chunked();
        let (mut out, mut left) = (Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !framing.is_done() {
                let (used, payload) = framing.take(rest)?;
                out.extend_from_slice(payload);
                rest = &rest[used..];
            }
            left += rest.len();
        }
        Ok((out, framing.is_done(), left))
    }

    #[test]
    fn chunks_split_anywhere_give_the_same_payload() {
        let body = b"5\r\nhello\r\n0a;ext=\"x\"\r\n, world!\r\n\r\n0\r\nX-T: 1\r\n\r\nREST";
        for at in 0..body.len() {
            let (a, b) = body.split_at(at);
            let (out, done, left) = read(&[a, b]).unwrap();
            assert_eq!(out, b"hello, world!\r\n", "split at {at}");
            assert!(done);
            assert_eq!(left, 4, "what follows is not eaten");
        }
    }

    #[test]
    fn a_size_is_the_same_however_it_is_written() {
        let payload = [b'x'; 0x1ab];
        for size in ["1ab", "1AB", "0001aB", "0000000000001ab", "1ab;a=b", "1ab ", "1ab\t;x"] {
            for (end, behind) in [("\r\n", "\r\n"), ("\n", "\n"), ("\r\n", "\n")] {
                let mut body = format!("{size}{end}").into_bytes();
                body.extend_from_slice(&payload);
                body.extend_from_slice(format!("{behind}0{end}{end}").as_bytes());
                let whole = read(&[&body]).unwrap();
                assert_eq!(whole, (payload.to_vec(), true, 0), "{size:?} {end:?}");
                assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()).unwrap(), whole, "{size:?} {end:?}");
            }
        }
        // One digit more than a size can have.
        assert_eq!(read(&[b"00000000000001ab\r\n"]), Err(BadChunks));
    }

    #[test]
    fn a_body_without_its_last_chunk_is_not_done() {
        let (out, done, _) = read(&[b"5\r\nhello\r\n"]).unwrap();
        assert_eq!(out, b"hello");
        assert!(!done);
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bad in [&b"x\r\n"[..], b"\r\n", b"2\r\nabc", b"ffffffffffffffffffff\r\n"] {
            assert_eq!(read(&[bad]), Err(BadChunks), "{bad:?}");
        }
    }

    #[test]
    fn a_length_ends_where_it_says() {
        let mut f = Framing::Length(3);
        assert_eq!(f.take(b"ab").unwrap(), (2, &b"ab"[..]));
        assert!(!f.is_done());
        assert_eq!(f.take(b"cdef").unwrap(), (1, &b"c"[..]));
        assert!(f.is_done());
    }
}
