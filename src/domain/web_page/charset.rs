//! Character encoding of a page: header, byte order mark, `<meta>`, or else a guess between UTF-8 and
//! windows-1252.

#[cfg(test)]
mod tests;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

/// Beginning of a page in which a `<meta>` may name the encoding, in bytes.
const SCAN_BYTES_MAX: usize = 1024;

/// Character encoding of a page or of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEncoding(&'static Encoding);

/// Page as text.
#[derive(Clone, Debug)]
pub struct DecodedPage {
    /// Text of the page. Bytes that the encoding does not know are U+FFFD.
    pub text: String,
    /// Encoding of the page.
    pub encoding: PageEncoding,
}

impl PageEncoding {
    /// UTF-8.
    pub const UTF_8: PageEncoding = PageEncoding(UTF_8);

    /// Returns the encoding of a label, as the Encoding Standard lists them.
    pub fn labelled(label: &str) -> Option<PageEncoding> {
        Encoding::for_label(label.as_bytes()).map(PageEncoding)
    }

    /// Returns the name of the encoding.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Returns the encoding in which forms of such a page are sent: UTF-8 in the place of UTF-16.
    pub fn of_submission(self) -> PageEncoding {
        PageEncoding(self.0.output_encoding())
    }

    /// Encodes text. Characters that the encoding does not have become decimal references such as `&#8364;`.
    pub fn encode(self, text: &str) -> Vec<u8> {
        self.0.encode(text).0.into_owned()
    }
}

/// Decodes the bytes of a page.
///
/// A page that names no encoding is UTF-8 if its bytes are valid UTF-8, and windows-1252 otherwise.
pub fn decode_page(bytes: &[u8], content_type: Option<&str>) -> DecodedPage {
    let from_header =
        || content_type.and_then(charset_of).and_then(|label| Encoding::for_label(label.as_bytes()));
    let (encoding, mark) = match Encoding::for_bom(bytes) {
        Some((encoding, length)) => (encoding, length),
        None => {
            let known = from_header().or_else(|| from_meta(bytes));
            (known.unwrap_or_else(|| guess(bytes)), 0)
        }
    };
    let (text, _) = encoding.decode_without_bom_handling(bytes.get(mark..).unwrap_or_default());
    DecodedPage { text: text.into_owned(), encoding: PageEncoding(encoding) }
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 }
}

/// Returns the charset in a content type, without its quotes.
fn charset_of(content_type: &str) -> Option<&str> {
    let lower = content_type.to_ascii_lowercase();
    let mut from = 0;
    loop {
        let at = from + lower.get(from..)?.find("charset")? + "charset".len();
        let rest = content_type.get(at..)?.trim_ascii_start();
        from = at;
        let Some(value) = rest.strip_prefix('=') else { continue };
        let value = value.trim_ascii_start();
        return match value.chars().next()? {
            quote @ ('"' | '\'') => value.get(1..)?.split_once(quote).map(|(inside, _)| inside.trim()),
            _ => value.split([';', ' ', '\t', '\n', '\u{c}', '\r']).next(),
        };
    }
}

/// Returns the encoding that a `<meta>` at the beginning of a page names, as the standard prescans it.
fn from_meta(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = bytes.get(..bytes.len().min(SCAN_BYTES_MAX)).unwrap_or_default();
    let mut scan = Scan { rest: start };
    while !scan.rest.is_empty() {
        if scan.skip(b"<!--") {
            // the two dashes of the opening may be those of the end
            scan.rest = start.get(start.len() - scan.rest.len() - 2..).unwrap_or_default();
            scan.skip_behind(b"-->");
        } else if scan.begins_tag(b"<meta") {
            scan.advance(5);
            if let Some(encoding) = scan.meta() {
                return Some(encoding);
            }
        } else if scan.begins_any_tag() {
            scan.advance(1);
            scan.skip_while(|byte| !is_space(byte) && byte != b'>');
            while scan.attribute().is_some() {}
        } else if [b"<!".as_slice(), b"</", b"<?"].iter().any(|start| scan.rest.starts_with(start)) {
            scan.skip_behind(b">");
        } else {
            scan.advance(1);
        }
    }
    None
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ')
}

struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn skip(&mut self, start: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(start);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_behind(&mut self, end: &[u8]) {
        let at = self.rest.windows(end.len()).position(|part| part == end);
        self.advance(at.map_or(self.rest.len(), |at| at + end.len()));
    }

    fn skip_while(&mut self, is_in: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !is_in(*byte)).unwrap_or(self.rest.len());
        let (found, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = rest;
        found
    }

    fn begins_tag(&self, start: &[u8]) -> bool {
        let is_it = self.rest.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
        is_it && self.rest.get(start.len()).is_some_and(|byte| is_space(*byte) || *byte == b'/')
    }

    fn begins_any_tag(&self) -> bool {
        let name = self.rest.strip_prefix(b"</").or_else(|| self.rest.strip_prefix(b"<"));
        name.and_then(|name| name.first()).is_some_and(u8::is_ascii_alphabetic)
    }

    /// Reads one attribute: name and value in lower case.
    fn attribute(&mut self) -> Option<(String, String)> {
        self.skip_while(|byte| is_space(byte) || byte == b'/');
        if self.rest.first().is_none_or(|byte| *byte == b'>') {
            return None;
        }
        let (equals, begin) = (b'=', self.rest);
        self.advance(1);
        self.skip_while(|byte| !is_space(byte) && !matches!(byte, b'/' | b'>') && byte != equals);
        let name = begin.get(..begin.len() - self.rest.len()).unwrap_or_default();
        self.skip_while(is_space);
        let mut value: &[u8] = &[];
        if self.skip(b"=") {
            self.skip_while(is_space);
            value = match self.rest.first() {
                Some(quote @ (b'"' | b'\'')) => {
                    self.advance(1);
                    let value = self.skip_while(|byte| byte != *quote);
                    self.advance(1);
                    value
                }
                _ => self.skip_while(|byte| !is_space(byte) && byte != b'>'),
            };
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
        Some((text(name), text(value)))
    }

    fn meta(&mut self) -> Option<&'static Encoding> {
        let (mut charset, mut content, mut is_pragma) = (None, None, false);
        while let Some((name, value)) = self.attribute() {
            match name.as_str() {
                "charset" if charset.is_none() => charset = Some(value),
                "content" if content.is_none() => content = Some(value),
                "http-equiv" => is_pragma |= value == "content-type",
                _ => {}
            }
        }
        let label = charset
            .or_else(|| content.filter(|_| is_pragma).and_then(|own| charset_of(&own).map(str::to_owned)));
        let encoding = Encoding::for_label(label?.as_bytes())?;
        // the bytes of the tag were read as ASCII, so neither can be
        Some(match encoding {
            encoding if encoding == UTF_16LE || encoding == UTF_16BE => UTF_8,
            encoding if encoding == X_USER_DEFINED => WINDOWS_1252,
            encoding => encoding,
        })
    }
}
