//! Walks an event of a chat stream without building a tree. The text itself is looked at only as far
//! as to see that there is some.
//!
//! Of a key that stands twice in an object the last one counts. What has to be walked (the event,
//! `choices`, a choice, its `delta`) and is of another type is refused; what is only looked at and
//! says nothing we know is absent.

use super::chunk::{Chunk, Usage};
use super::json::{BadJson, Cursor, Text};
use super::record::Kinds;
use super::repeat::{Holes, Slot};

/// What is known of an event so far.
pub(super) struct Event<'a> {
    json: Cursor<'a>,
    /// Of all choices.
    kinds: Kinds,
    reason: Option<Text<'a>>,
    /// Of the choice and the usage that are being read.
    leaves: Leaves,
    has_usage: bool,
    has_error: bool,
    is_error_object: bool,
    /// Where something stands that has to be walked and is of another type. No error at once: the same key may follow.
    misfit: Option<usize>,
    holes: Holes,
}

/// What stands at the ends of the branches that we walk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaves {
    /// A bit for each part of a choice that is there and not empty.
    filled: u8,
    usage: Usage,
    /// Where the text of a content and of a reasoning stands, between its quotes.
    content: Place,
    reasoning: Place,
}

/// A place in an event's bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: u32,
    end: u32,
}

impl Place {
    #[inline]
    fn of(self, data: &[u8]) -> &[u8] {
        data.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The parts of a choice, as bits.
pub(super) mod part {
    pub(super) const ROLE: u8 = 1;
    pub(super) const CONTENT: u8 = 1 << 1;
    pub(super) const REASONING: u8 = 1 << 2;
    pub(super) const REASONING_CONTENT: u8 = 1 << 3;
    pub(super) const REASONING_TEXT: u8 = 1 << 4;
    pub(super) const TOOL_CALLS: u8 = 1 << 5;
    pub(super) const FUNCTION_CALL: u8 = 1 << 6;
    /// Of a stream of plain completions: it stands where a chat has its delta.
    pub(super) const TEXT: u8 = 1 << 7;
}

impl Leaves {
    /// Reads the value that is next.
    #[inline(always)]
    pub(super) fn read(&mut self, slot: Slot, json: &mut Cursor<'_>) -> Result<(), BadJson> {
        match slot {
            Slot::Part(part) => {
                if json.peek()? == b'"' {
                    let start = json.at() + 1;
                    json.text()?;
                    let end = json.at() - 1;
                    self.set(part, end > start);
                    self.place(part, start..end);
                } else {
                    self.set(part, json.is_filled()?);
                    self.place(part, 0..0);
                }
            }
            Slot::CompletionTokens => self.usage.completion_tokens = count(json)?,
            Slot::PromptTokens => self.usage.prompt_tokens = count(json)?,
            Slot::CachedTokens => self.usage.cached_tokens = count(json)?,
            Slot::Unknown => json.skip()?,
        }
        Ok(())
    }

    #[inline]
    fn set(&mut self, part: u8, filled: bool) {
        self.filled = self.filled & !part | if filled { part } else { 0 };
    }

    /// Of several names for a text the last one with anything in it counts: some servers write it twice, or the other
    /// one as `null`.
    #[inline(always)]
    fn place(&mut self, part: u8, text: std::ops::Range<usize>) {
        if text.is_empty() {
            return;
        }
        // No event is as long as 4 GB.
        let place = Place { start: text.start as u32, end: text.end as u32 };
        if part & (part::CONTENT | part::TEXT) != 0 {
            self.content = place;
        } else if part & (part::REASONING | part::REASONING_CONTENT | part::REASONING_TEXT) != 0 {
            self.reasoning = place;
        }
    }

    #[inline]
    fn kinds(self) -> Kinds {
        let table = [
            (part::ROLE, Kinds::ROLE),
            (part::CONTENT | part::TEXT, Kinds::CONTENT),
            (part::REASONING | part::REASONING_CONTENT | part::REASONING_TEXT, Kinds::REASONING),
            (part::TOOL_CALLS | part::FUNCTION_CALL, Kinds::TOOL),
        ];
        let there = table.iter().filter(|(parts, _)| self.filled & parts != 0);
        there.fold(Kinds::default(), |all, (_, kind)| all.with(*kind))
    }

    /// As an event that holds nothing else.
    #[inline]
    pub(super) fn chunk(self, data: &[u8], has_usage: bool) -> Chunk<'_> {
        let kinds = self.kinds();
        let (content, reasoning) = self.texts(data, kinds);
        Chunk { kinds, usage: has_usage.then_some(self.usage), content, reasoning, ..Chunk::default() }
    }

    /// Content and reasoning as they stand between their quotes.
    #[inline]
    fn texts<'d>(self, data: &'d [u8], kinds: Kinds) -> (&'d [u8], &'d [u8]) {
        let of = |kind, place: Place| -> &'d [u8] { if kinds.has(kind) { place.of(data) } else { &[] } };
        (of(Kinds::CONTENT, self.content), of(Kinds::REASONING, self.reasoning))
    }

    /// What of it stands in no hole.
    pub(super) fn role(self) -> Self {
        Self { filled: self.filled & part::ROLE, ..Self::default() }
    }
}

impl<'a> Event<'a> {
    /// Reads an event whole.
    #[inline]
    pub(super) fn read(data: &'a [u8]) -> Result<Self, BadJson> {
        let mut event = Self {
            json: Cursor::new(data),
            kinds: Kinds::default(),
            reason: None,
            leaves: Leaves::default(),
            has_usage: false,
            has_error: false,
            is_error_object: false,
            misfit: None,
            holes: Holes::default(),
        };
        event.keys()?;
        Ok(event)
    }

    /// Where its leaves stand, if they are all that the next event of this kind may differ in.
    pub(super) fn holes(&self) -> Option<(Holes, Leaves, bool)> {
        let plain = self.reason.is_none() && self.misfit.is_none() && !self.has_error && !self.is_error_object;
        plain.then_some((self.holes, self.leaves, self.has_usage))
    }

    pub(super) fn chunk(self) -> Result<Chunk<'a>, BadJson> {
        if let Some(at) = self.misfit {
            return Err(BadJson { at });
        }
        let (content, reasoning) = self.leaves.texts(self.json.bytes(), self.kinds);
        Ok(Chunk {
            kinds: self.kinds,
            content,
            reasoning,
            usage: self.has_usage.then_some(self.leaves.usage),
            finish_reason: self.reason.map(Text::to_text),
            is_error: self.has_error || self.is_error_object,
        })
    }

    #[inline]
    fn keys(&mut self) -> Result<(), BadJson> {
        let mut key = self.json.open_object()?;
        while let Some(name) = key {
            match &*name.bytes() {
                b"choices" => self.choices()?,
                b"usage" => self.usage()?,
                b"error" => self.has_error = !self.json.is_null()?,
                b"object" => self.is_error_object = is_text(&mut self.json, b"error")?,
                _ => self.json.skip()?,
            }
            key = self.json.next_key()?;
        }
        self.json.end()
    }

    #[inline]
    fn choices(&mut self) -> Result<(), BadJson> {
        self.holes.once(Slot::CHOICES);
        (self.kinds, self.reason, self.misfit) = (Kinds::default(), None, None);
        if self.json.peek()? != b'[' {
            self.misfit = self.null_or_misfit()?;
            return Ok(());
        }
        let mut more = self.json.open_list()?;
        while more {
            self.choice()?;
            more = self.json.next_item()?;
        }
        Ok(())
    }

    /// Passes over a value that is not of the type it should have; where it stands, unless it is `null`.
    fn null_or_misfit(&mut self) -> Result<Option<usize>, BadJson> {
        let at = self.json.at();
        Ok((!self.json.is_null()?).then_some(at))
    }

    #[inline]
    fn choice(&mut self) -> Result<(), BadJson> {
        self.holes.once(Slot::CHOICE);
        if self.json.peek()? != b'{' {
            self.misfit = Some(self.json.at());
            return self.json.skip();
        }
        self.leaves.filled = 0;
        let (mut reason, mut misfit) = (None, None);
        let mut key = self.json.open_object()?;
        while let Some(name) = key {
            match &*name.bytes() {
                b"delta" => misfit = self.delta()?,
                b"finish_reason" => reason = finish_reason(&mut self.json)?,
                b"text" => self.leaf(Slot::Part(part::TEXT))?,
                _ => self.json.skip()?,
            }
            key = self.json.next_key()?;
        }
        self.kinds = self.kinds.with(self.leaves.kinds());
        self.misfit = self.misfit.or(misfit);
        if reason.is_some() {
            self.kinds = self.kinds.with(Kinds::FINISH);
            self.reason = reason;
        }
        Ok(())
    }

    /// Where the delta stands, if it is none.
    #[inline]
    fn delta(&mut self) -> Result<Option<usize>, BadJson> {
        self.holes.once(Slot::DELTA);
        self.leaves.filled &= part::TEXT;
        if self.json.peek()? != b'{' {
            return self.null_or_misfit();
        }
        let mut key = self.json.open_object()?;
        while let Some(name) = key {
            match &*name.bytes() {
                // The role itself says nothing; that there is one does.
                b"role" => {
                    let role = !self.json.is_null()?;
                    self.leaves.set(part::ROLE, role);
                }
                b"content" => self.leaf(Slot::Part(part::CONTENT))?,
                b"reasoning" => self.leaf(Slot::Part(part::REASONING))?,
                b"reasoning_content" => self.leaf(Slot::Part(part::REASONING_CONTENT))?,
                b"reasoning_text" => self.leaf(Slot::Part(part::REASONING_TEXT))?,
                b"tool_calls" => self.leaf(Slot::Part(part::TOOL_CALLS))?,
                b"function_call" => self.leaf(Slot::Part(part::FUNCTION_CALL))?,
                _ => self.json.skip()?,
            }
            key = self.json.next_key()?;
        }
        Ok(None)
    }

    #[inline]
    fn usage(&mut self) -> Result<(), BadJson> {
        self.holes.once(Slot::USAGE);
        self.leaves.usage = Usage::default();
        self.has_usage = self.json.peek()? == b'{';
        if !self.has_usage {
            return self.json.skip();
        }
        let mut key = self.json.open_object()?;
        while let Some(name) = key {
            match &*name.bytes() {
                b"completion_tokens" => self.leaf(Slot::CompletionTokens)?,
                b"prompt_tokens" => self.leaf(Slot::PromptTokens)?,
                b"prompt_tokens_details" => self.prompt_details()?,
                _ => self.leaf(Slot::Unknown)?,
            }
            key = self.json.next_key()?;
        }
        Ok(())
    }

    fn prompt_details(&mut self) -> Result<(), BadJson> {
        self.holes.once(Slot::DETAILS);
        self.leaves.usage.cached_tokens = None;
        if self.json.peek()? != b'{' {
            return self.json.skip();
        }
        let mut key = self.json.open_object()?;
        while let Some(name) = key {
            match &*name.bytes() {
                b"cached_tokens" => self.leaf(Slot::CachedTokens)?,
                _ => self.json.skip()?,
            }
            key = self.json.next_key()?;
        }
        Ok(())
    }

    /// Reads a value at the end of a branch, and marks where it stands.
    #[inline]
    fn leaf(&mut self, slot: Slot) -> Result<(), BadJson> {
        let is_null = self.json.peek()? == b'n';
        let (start, depth) = (self.json.at(), self.json.depth());
        self.leaves.read(slot, &mut self.json)?;
        self.holes.add(slot, start..self.json.at(), depth, is_null);
        Ok(())
    }
}

/// The `id` of an event's object, if it is a text and not empty.
pub(super) fn id(data: &[u8]) -> Option<String> {
    let mut json = Cursor::new(data);
    let mut key = json.open_object().ok()?;
    while let Some(name) = key {
        if &*name.bytes() == b"id" {
            let is_text = json.peek().ok()? == b'"';
            return if is_text { Some(json.text().ok()?.to_text().into_owned()).filter(|id| !id.is_empty()) } else { None };
        }
        json.skip().ok()?;
        key = json.next_key().ok()?;
    }
    None
}

/// Text, or with SGLang an object with a `type`. An empty text is none: some servers write it until the end.
#[inline]
fn finish_reason<'a>(json: &mut Cursor<'a>) -> Result<Option<Text<'a>>, BadJson> {
    const OTHER: Text<'static> = Text::plain(b"other");
    match json.peek()? {
        b'n' => json.skip().map(|()| None),
        b'"' => Ok(Some(json.text()?).filter(|text| !text.is_empty())),
        b'{' => {
            let mut reason = OTHER;
            let mut key = json.open_object()?;
            while let Some(name) = key {
                if &*name.bytes() == b"type" {
                    reason = if json.peek()? == b'"' { json.text()? } else { json.skip().map(|()| OTHER)? };
                } else {
                    json.skip()?;
                }
                key = json.next_key()?;
            }
            Ok(Some(if reason.is_empty() { OTHER } else { reason }))
        }
        _ => json.skip().map(|()| Some(OTHER)),
    }
}

/// A count of tokens, however it is written; what is no count is none.
#[inline]
fn count(json: &mut Cursor<'_>) -> Result<Option<u32>, BadJson> {
    match json.peek()? {
        b'"' => Ok(digits(&json.text()?.bytes())),
        b'-' | b'0'..=b'9' => {
            let number = json.number()?;
            Ok(digits(number).or_else(|| whole(number)))
        }
        _ => json.skip().map(|()| None),
    }
}

#[inline]
fn digits(text: &[u8]) -> Option<u32> {
    let mut n = 0_u32;
    for b in text {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        n = n.checked_mul(10)?.checked_add(digit)?;
    }
    (!text.is_empty()).then_some(n)
}

/// A number with a point or exponent that is whole all the same.
#[cold]
fn whole(number: &[u8]) -> Option<u32> {
    let n: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let is_count = n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n);
    is_count.then_some(n as u32)
}

#[inline]
fn is_text(json: &mut Cursor<'_>, want: &[u8]) -> Result<bool, BadJson> {
    if json.peek()? != b'"' {
        return json.skip().map(|()| false);
    }
    Ok(&*json.text()?.bytes() == want)
}
