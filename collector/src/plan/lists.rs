//! Lists of contexts and concurrency levels as people write them. Pure.

/// What is wrong with a list given on the command line. Each is one sentence without the option's
/// name, which the caller puts in front.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListError {
    /// Nothing in it.
    #[error("the list is empty; give at least one value, e.g. {example}")]
    Empty {
        /// A list that would do.
        example: &'static str,
    },
    /// An item between two commas is missing.
    #[error("there is an empty item in '{list}'; remove the extra comma")]
    EmptyItem {
        /// The list as given.
        list: String,
    },
    /// Not a number.
    #[error("cannot read '{item}'; write {expected}")]
    Unreadable {
        /// The item as given.
        item: String,
        /// What would be read.
        expected: &'static str,
    },
    /// A number that makes no sense here.
    #[error("'{item}' is too small; the least is {least}")]
    TooSmall {
        /// The item as given.
        item: String,
        /// The least allowed.
        least: u32,
    },
    /// A number beyond all servers.
    #[error("'{item}' is too large; the most is {most}")]
    TooLarge {
        /// The item as given.
        item: String,
        /// The most allowed.
        most: u32,
    },
    /// Twice the same.
    #[error("{value} is listed twice; remove one")]
    Duplicate {
        /// The value.
        value: String,
    },
}

/// Tokens as people write them: `0`, `512`, `32k`, `1.5k`, `1m` (k = 1024, m = 1024²; fractions
/// of a token are dropped).
///
/// # Errors
/// Text that is no such number, negative numbers, more than 2³¹ tokens.
pub fn parse_tokens(text: &str) -> Result<u32, ListError> {
    const EXPECTED: &str = "tokens as 512, 32k, 1.5k or 1m";
    const MOST: u32 = 1 << 31;
    let item = text.trim();
    let unreadable = || ListError::Unreadable { item: item.to_owned(), expected: EXPECTED };
    let (number, factor) = match item.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&item[..at], 1024.0),
        Some((at, 'm' | 'M')) => (&item[..at], 1024.0 * 1024.0),
        _ => (item, 1.0),
    };
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, number),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let has_digit = digits.bytes().any(|b| b.is_ascii_digit());
    if !plain || !has_digit || (factor == 1.0 && digits.contains('.')) {
        return Err(unreadable());
    }
    let value: f64 = digits.parse().map_err(|_| unreadable())?;
    if sign < 0.0 {
        return Err(ListError::TooSmall { item: item.to_owned(), least: 0 });
    }
    let tokens = (value * factor).floor();
    if tokens > f64::from(MOST) {
        return Err(ListError::TooLarge { item: item.to_owned(), most: MOST });
    }
    // In range by the check above; whole by floor.
    Ok(tokens as u32)
}

/// `--contexts`: a comma-separated list of [`parse_tokens`] values without duplicates.
///
/// # Errors
/// As [`parse_tokens`]; an empty list or item, a duplicate.
pub fn parse_contexts(list: &str) -> Result<Vec<u32>, ListError> {
    parse_list(list, "0,16k,32k", parse_tokens)
}

/// `--concurrency`: a comma-separated list of whole numbers from 1, without duplicates.
///
/// # Errors
/// Zero, negative or unreadable numbers, more than 65536; an empty list or item, a duplicate.
pub fn parse_concurrency(list: &str) -> Result<Vec<u32>, ListError> {
    const MOST: u32 = 65_536;
    parse_list(list, "1,4,16", |text| {
        let item = text.trim();
        let unreadable = || ListError::Unreadable { item: item.to_owned(), expected: "whole numbers as 1,4,16" };
        let value: i64 = item.parse().map_err(|_| unreadable())?;
        match u32::try_from(value) {
            Ok(v) if (1..=MOST).contains(&v) => Ok(v),
            _ if value < 1 => Err(ListError::TooSmall { item: item.to_owned(), least: 1 }),
            _ => Err(ListError::TooLarge { item: item.to_owned(), most: MOST }),
        }
    })
}

fn parse_list(list: &str, example: &'static str, parse: impl Fn(&str) -> Result<u32, ListError>) -> Result<Vec<u32>, ListError> {
    if list.trim().is_empty() {
        return Err(ListError::Empty { example });
    }
    let mut values = Vec::new();
    for item in list.split(',') {
        if item.trim().is_empty() {
            let list = list.to_owned();
            return Err(ListError::EmptyItem { list });
        }
        let value = parse(item)?;
        if values.contains(&value) {
            let value = item.trim().to_owned();
            return Err(ListError::Duplicate { value });
        }
        values.push(value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn token_values_read_as_people_write_them() {
        for (text, want) in [("0", 0), ("512", 512), ("32k", 32_768), (" 1.5K ", 1536), ("0.3k", 307), ("1m", 1 << 20), ("2M", 2 << 20)] {
            assert_eq!(parse_tokens(text).unwrap(), want, "{text}");
        }
        for text in ["", "k", "1.5", "4g", "1e3", "0x10", "1_000", "٣k", "1.2.3k", "inf", "nan", "--1"] {
            assert!(matches!(parse_tokens(text), Err(ListError::Unreadable { .. })), "{text}");
        }
        assert!(matches!(parse_tokens("-1k"), Err(ListError::TooSmall { .. })));
        assert!(matches!(parse_tokens("9999m"), Err(ListError::TooLarge { .. })));
    }

    #[test]
    fn lists_refuse_what_makes_no_sense_in_words() {
        let text = |e: Result<Vec<u32>, ListError>| e.unwrap_err().to_string();
        assert_eq!(parse_contexts("0, 16k,1m").unwrap(), [0, 16_384, 1 << 20]);
        assert_eq!(parse_concurrency("1,7, 2").unwrap(), [1, 7, 2]);
        assert!(text(parse_contexts(" ")).contains("empty"));
        assert!(text(parse_contexts("1k,,2k")).contains("extra comma"));
        assert!(text(parse_contexts("1k,1024")).contains("listed twice"));
        assert!(text(parse_concurrency("1,0")).contains("least is 1"));
        assert!(text(parse_concurrency("-4")).contains("least is 1"));
        assert!(text(parse_concurrency("4k")).contains("whole numbers"));
        assert!(text(parse_concurrency("2,2")).contains("listed twice"));
        assert!(text(parse_concurrency("70000")).contains("most is 65536"));
    }
}
