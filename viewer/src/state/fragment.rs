//! The address's fragment: which reports of the host are open and which metric is shown. Text in, text out.

use std::fmt::Write;

/// What an address asks for: `#open=api/reports/a.json&metric=ttft-p50`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Addresses of reports, relative to the page.
    pub open: Vec<String>,
    /// Name of a metric.
    pub metric: Option<String>,
}

impl Fragment {
    /// Of an address's text after `#`. Unknown keys, and addresses that leave the page's host, are ignored.
    pub fn read(text: &str) -> Self {
        let mut fragment = Fragment::default();
        for pair in text.trim_start_matches('#').split('&') {
            let Some((key, value)) = pair.split_once('=') else { continue };
            match key {
                "open" if is_relative(value) => fragment.open.push(value.to_owned()),
                "metric" if !value.is_empty() => fragment.metric = Some(decode(value)),
                _ => {}
            }
        }
        fragment
    }

    /// As text, without `#`.
    pub fn write(&self) -> String {
        let opened = self.open.iter().map(|address| format!("open={}", address.replace('&', "%26").replace('#', "%23")));
        let metric = self.metric.iter().map(|metric| format!("metric={}", encode(metric)));
        opened.chain(metric).collect::<Vec<_>>().join("&")
    }
}

/// Whether an address stays where the page came from: no scheme, no host.
pub fn is_relative(address: &str) -> bool {
    let before_path = address.split(['/', '?', '#']).next().unwrap_or_default();
    !address.is_empty() && !address.starts_with("//") && !before_path.contains(':') && !address.contains(['\\', ' ']) && address.is_ascii()
}

/// The last part of an address as a file's name.
pub fn file_name(address: &str) -> String {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    decode(path.rsplit('/').next().unwrap_or_default())
}

/// Percent-encodes all but letters, digits and `-_.~`.
pub fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing into a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Undoes percent-encoding; what is no encoding stays as it is.
pub fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let fragment = Fragment {
            open: vec!["api/reports/a%20b.json".to_owned(), "r/x.json?v=1&w=2".to_owned().replace('&', "%26")],
            metric: Some("ttft-p50".to_owned()),
        };
        assert_eq!(Fragment::read(&fragment.write()), fragment);
        assert_eq!(Fragment::read(&format!("#{}", fragment.write())), fragment);
        assert_eq!(Fragment::read(""), Fragment::default());
        assert_eq!(Fragment::default().write(), "");
    }

    #[test]
    fn addresses_of_other_hosts_are_ignored() {
        for bad in ["https://x.example/a.json", "//x.example/a.json", "javascript:alert(1)", "data:text/plain,x", "\\\\x\\a", "", "a b"] {
            assert_eq!(Fragment::read(&format!("open={bad}")).open, Vec::<String>::new(), "{bad}");
        }
        for good in ["api/reports/a.json", "./a.json", "../a.json", "/a.json", "a/b:c.json"] {
            assert_eq!(Fragment::read(&format!("open={good}")).open, [good]);
        }
    }

    #[test]
    fn unknown_keys_do_no_harm() {
        let fragment = Fragment::read("x=1&open&metric=&=&open=a.json");
        assert_eq!(fragment, Fragment { open: vec!["a.json".to_owned()], metric: None });
    }

    #[test]
    fn names_are_decoded_and_odd_codes_stay() {
        assert_eq!(file_name("api/reports/a%20%C3%BC.json?x"), "a ü.json");
        for odd in ["100%", "%zz", "%2"] {
            assert_eq!(decode(odd), odd);
        }
        assert_eq!(decode(&encode("ü &=#%/")), "ü &=#%/");
    }
}
