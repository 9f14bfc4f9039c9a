//! JSON read in place: a cursor that walks objects and lists, hands out texts and numbers as slices and passes
//! over what nobody asked for. All it passes is checked against the grammar (RFC 8259), but for two things that
//! servers do in the middle of a text: bytes that are no UTF-8, and half of a surrogate pair. It builds no tree,
//! allocates only to decode an escape, and knows nothing of what a key means.

use std::borrow::Cow;

/// Data that is no JSON, or not of the shape that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event is no chat chunk: what stands at byte {at} of it does not belong there")]
pub struct BadJson {
    /// Where reading stopped, in bytes from the start.
    pub at: usize,
}

/// Objects and lists within each other. What serde_json allows; the innermost is never a frame of our stack.
pub(super) const MAX_DEPTH: u32 = 127;

/// A place in a text.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many objects and lists are open.
    depth: u32,
}

/// A text as it stands between its quotes.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    pub(super) const fn plain(raw: &'a [u8]) -> Self {
        Self { raw, escaped: false }
    }

    pub(super) fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// As it stands between its quotes; it has been checked.
    pub(super) fn checked(raw: &'a [u8]) -> Self {
        Self { raw, escaped: memchr::memchr(b'\\', raw).is_some() }
    }

    /// The bytes it stands for.
    #[inline(always)]
    pub(super) fn bytes(self) -> Cow<'a, [u8]> {
        if self.escaped { Cow::Owned(decode(self.raw)) } else { Cow::Borrowed(self.raw) }
    }

    /// As text; what is no UTF-8 becomes U+FFFD.
    pub(super) fn to_text(self) -> Cow<'a, str> {
        match self.bytes() {
            Cow::Borrowed(raw) => String::from_utf8_lossy(raw),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    /// At a place inside so many objects and lists.
    pub(super) fn inside(bytes: &'a [u8], at: usize, depth: u32) -> Self {
        Self { bytes, at, depth }
    }

    /// All of them, from the beginning.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    #[cold]
    pub(super) fn bad<T>(&self) -> Result<T, BadJson> {
        Err(BadJson { at: self.at })
    }

    /// The next byte that is not white space; it is not taken.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Result<u8, BadJson> {
        match self.bytes.get(self.at) {
            Some(&b) if b > b' ' => Ok(b),
            _ => self.peek_behind_space(),
        }
    }

    #[cold]
    fn peek_behind_space(&mut self) -> Result<u8, BadJson> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&b) => return Ok(b),
                None => return self.bad(),
            }
        }
    }

    /// Nothing but white space is left.
    pub(super) fn end(&mut self) -> Result<(), BadJson> {
        if self.peek().is_ok() { self.bad() } else { Ok(()) }
    }

    /// Goes into an object: to the value of its first key, or past it if it is empty.
    #[inline(always)]
    pub(super) fn open_object(&mut self) -> Result<Option<Text<'a>>, BadJson> {
        self.open(b'{')?;
        if self.closes(b'}')? { Ok(None) } else { self.key().map(Some) }
    }

    /// From behind a value to that of the next key, or past the object.
    #[inline(always)]
    pub(super) fn next_key(&mut self) -> Result<Option<Text<'a>>, BadJson> {
        if self.closes(b'}')? {
            return Ok(None);
        }
        self.take(b',')?;
        self.key().map(Some)
    }

    /// Goes into a list: to its first item, or past it if it is empty (false).
    #[inline(always)]
    pub(super) fn open_list(&mut self) -> Result<bool, BadJson> {
        self.open(b'[')?;
        self.closes(b']').map(|closed| !closed)
    }

    /// From behind an item to the next one, or past the list (false).
    #[inline(always)]
    pub(super) fn next_item(&mut self) -> Result<bool, BadJson> {
        if self.closes(b']')? {
            return Ok(false);
        }
        self.take(b',')?;
        Ok(true)
    }

    #[inline(always)]
    fn open(&mut self, bracket: u8) -> Result<(), BadJson> {
        if self.depth == MAX_DEPTH {
            return self.bad();
        }
        self.take(bracket)?;
        self.depth += 1;
        Ok(())
    }

    #[inline(always)]
    fn closes(&mut self, bracket: u8) -> Result<bool, BadJson> {
        let closes = self.peek()? == bracket;
        if closes {
            self.at += 1;
            self.depth -= 1;
        }
        Ok(closes)
    }

    #[inline(always)]
    fn take(&mut self, want: u8) -> Result<(), BadJson> {
        if self.peek()? != want {
            return self.bad();
        }
        self.at += 1;
        Ok(())
    }

    #[inline(always)]
    fn key(&mut self) -> Result<Text<'a>, BadJson> {
        let key = self.text()?;
        self.take(b':')?;
        Ok(key)
    }

    /// The text that is next.
    #[inline(always)]
    pub(super) fn text(&mut self) -> Result<Text<'a>, BadJson> {
        self.take(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at = plain_until(self.bytes, self.at);
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return self.bad(),
            }
        }
        let raw = &self.bytes[start..self.at];
        self.at += 1;
        Ok(Text { raw, escaped })
    }

    fn escape(&mut self) -> Result<(), BadJson> {
        let length = match &self.bytes[self.at + 1..] {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', hex @ ..] if hex.first_chunk::<4>().is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) => 6,
            _ => return self.bad(),
        };
        self.at += length;
        Ok(())
    }

    /// The number that is next, as it is written.
    pub(super) fn number(&mut self) -> Result<&'a [u8], BadJson> {
        self.peek()?;
        let start = self.at;
        self.at += usize::from(self.here(b'-'));
        if self.here(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.here(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if self.here(b'e') || self.here(b'E') {
            self.at += 1;
            self.at += usize::from(self.here(b'+') || self.here(b'-'));
            self.digits()?;
        }
        Ok(&self.bytes[start..self.at])
    }

    #[inline(always)]
    fn here(&self, want: u8) -> bool {
        self.bytes.get(self.at) == Some(&want)
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<(), BadJson> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { self.bad() } else { Ok(()) }
    }

    #[inline(always)]
    fn literal(&mut self, word: &[u8]) -> Result<(), BadJson> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.bad();
        }
        self.at += word.len();
        Ok(())
    }

    /// Passes over a value.
    #[inline(always)]
    pub(super) fn skip(&mut self) -> Result<(), BadJson> {
        match self.peek()? {
            b'{' | b'[' => self.skip_nested(),
            first => self.skip_simple(first),
        }
    }

    #[inline(always)]
    fn skip_simple(&mut self, first: u8) -> Result<(), BadJson> {
        match first {
            b'"' => self.text().map(drop),
            b'n' => self.literal(b"null"),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            _ => self.number().map(drop),
        }
    }

    /// Without recursion: which of the open brackets are objects is a bit each, the innermost lowest.
    fn skip_nested(&mut self) -> Result<(), BadJson> {
        let outside = self.depth;
        let mut objects = 0_u128;
        loop {
            match self.peek()? {
                b'{' => {
                    objects = (objects << 1) | 1;
                    if self.open_object()?.is_some() {
                        continue;
                    }
                    objects >>= 1;
                }
                b'[' => {
                    objects <<= 1;
                    if self.open_list()? {
                        continue;
                    }
                    objects >>= 1;
                }
                first => self.skip_simple(first)?,
            }
            // Behind a value: to the next one, past every bracket that closes here.
            loop {
                if self.depth == outside {
                    return Ok(());
                }
                let more = if objects & 1 == 1 { self.next_key()?.is_some() } else { self.next_item()? };
                if more {
                    break;
                }
                objects >>= 1;
            }
        }
    }

    /// Passes over a value; whether it is a text, list or object with anything in it.
    #[inline(always)]
    pub(super) fn is_filled(&mut self) -> Result<bool, BadJson> {
        match self.peek()? {
            b'"' => self.text().map(|text| !text.is_empty()),
            b'{' | b'[' => {
                let open = self.at;
                self.skip_nested()?;
                Ok(!self.bytes[open + 1..self.at - 1].trim_ascii().is_empty())
            }
            first => self.skip_simple(first).map(|()| false),
        }
    }

    /// Passes over a value; whether it is `null`.
    #[inline(always)]
    pub(super) fn is_null(&mut self) -> Result<bool, BadJson> {
        let null = self.peek()? == b'n';
        self.skip()?;
        Ok(null)
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;

/// From `at` on, the first byte that means something inside a text (a quote, a backslash, a control character),
/// or the end. Eight bytes at once: a subtraction leaves the high bit of each byte that is too small. A borrow
/// may spoil the bytes above such a one, so only the lowest of them is believed.
#[inline(always)]
fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let v = u64::from_le_bytes(*eight);
        let quote = (v ^ (u64::from(b'"') * ONES)).wrapping_sub(ONES);
        let backslash = (v ^ (u64::from(b'\\') * ONES)).wrapping_sub(ONES);
        let control = v.wrapping_sub(0x20 * ONES);
        let found = (quote | backslash | control) & !v & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|b| *b != b'"' && *b != b'\\' && *b >= 0x20) {
        at += 1;
    }
    at
}

/// Resolves the escapes of a text that [`Cursor::text`] has checked. Half of a surrogate pair becomes U+FFFD.
fn decode(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if let Some((first, behind)) = unit(rest) {
            let pair = unit(behind).map(|(second, behind)| (char::decode_utf16([first, second]).next(), behind));
            let (c, behind) = match pair {
                Some((Some(Ok(c)), behind)) if c > '\u{FFFF}' => (c, behind),
                _ => (char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER), behind),
            };
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = behind;
        } else {
            out.extend(rest.get(1).map(|b| match b {
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                other => *other,
            }));
            rest = rest.get(2..).unwrap_or_default();
        }
    }
    out.extend_from_slice(rest);
    out
}

/// A `\uXXXX` at the front, and what follows it.
fn unit(escaped: &[u8]) -> Option<(u16, &[u8])> {
    let hex = escaped.strip_prefix(b"\\u")?;
    let (digits, behind) = hex.split_first_chunk::<4>()?;
    let text = std::str::from_utf8(digits).ok()?;
    Some((u16::from_str_radix(text, 16).ok()?, behind))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn skips(json: &[u8]) -> bool {
        let mut cursor = Cursor::new(json);
        cursor.skip().and_then(|()| cursor.end()).is_ok()
    }

    #[test]
    fn json_is_passed_over_and_what_is_none_is_refused() {
        let good =
            r#"{} [] [[]] {"a":{}} [1,-0,0.5,1e9,2E-3,1.0e+1] "" "a\"\\\/\b\f\n\r\t\u00e9" null true false {"a":[{"b":1},2],"c":"d"}"#;
        let mut all: Vec<&str> = good.split(' ').collect();
        all.extend([" { \"a\" : [ 1 , 2 ] } \n", "\"\u{7f}\u{e9}\"", r#""\ud800""#]);
        for json in all {
            assert!(skips(json.as_bytes()), "{json}");
        }
        let bad = "{ [ } ] {] [} [1,] [,1] [1,,2] {\"a\"} {\"a\":} {\"a\":1,} {,} {1:2} {a:1} 01 - -a 1. .5 1e 1e+ +1 nul nulll tru falsey \
            \" \"a \"\\x\" \"\\u12\" \"\\u12g4\" \"\\ [1]2 {}{} [1}] NaN Infinity 'a' \"\\";
        let mut all: Vec<&str> = bad.split(' ').collect();
        all.extend(["", " ", "\"a\nb\"", "\"a\u{1}\"", "[1 2]", "{\"a\" 1}", "{\"a\":1 \"b\":2}"]);
        for json in all {
            assert!(!skips(json.as_bytes()), "{json}");
        }
    }

    #[test]
    fn nesting_has_a_limit_and_no_depth_overflows_the_stack() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
            assert!(skips(nested(MAX_DEPTH as usize).as_bytes()));
            assert!(!skips(nested(MAX_DEPTH as usize + 1).as_bytes()));
            assert!(!skips(open.repeat(1_000_000).as_bytes()));
        }
    }

    #[test]
    fn the_end_of_a_text_is_found_wherever_it_stands() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for length in 0..40 {
                for behind in 0..10 {
                    let mut text = vec![0xff; length];
                    text.push(special);
                    text.extend(vec![b'"'; behind]);
                    assert_eq!(plain_until(&text, 0), length, "{special} after {length} before {behind}");
                }
            }
        }
        for plain in (0..=u8::MAX).filter(|b| *b >= 0x20 && *b != b'"' && *b != b'\\') {
            assert_eq!(plain_until(&[plain; 19], 3), 19, "{plain}");
        }
    }

    #[test]
    fn escapes_stand_for_what_json_says() {
        let table = [
            (r"a\n\t\r\b\f\/\\\u0041b", "a\n\t\r\u{8}\u{c}/\\Ab"),
            (r"\ud83d\ude00\u00e9", "\u{1f600}\u{e9}"),
            (r"\ud83d", "\u{fffd}"),
            (r"\ud83dx\ude00", "\u{fffd}x\u{fffd}"),
            (r"\ud83d\u0041", "\u{fffd}A"),
            (r"\u0041\u0042", "AB"),
        ];
        for (raw, want) in table {
            let json = format!("\"{raw}\"");
            assert_eq!(Cursor::new(json.as_bytes()).text().unwrap().to_text(), want, "{raw}");
        }
        assert_eq!(Cursor::new(b"\"a\xE2\x82\"").text().unwrap().to_text(), "a\u{fffd}");
    }

    #[test]
    fn an_error_says_where() {
        let mut cursor = Cursor::new(b"[1, 2, x]");
        assert_eq!(cursor.skip(), Err(BadJson { at: 7 }));
    }
}
