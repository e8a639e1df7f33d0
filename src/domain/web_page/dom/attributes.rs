//! Counter of the attributes of a tag while its text arrives.
//!
//! The tokenizer compares each attribute with all before it, and reports a tag when it is complete. The
//! states are those of the HTML standard ("13.2.5 Tokenization").

/// Counter of the attributes of one tag.
#[derive(Debug)]
pub(super) struct AttributeCounter {
    state: State,
    /// Attributes that began, up to now.
    pub(super) count: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    TagOpen,
    TagName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Unquoted,
    Quoted(u8),
    End,
}

impl AttributeCounter {
    /// Creates a counter for the text of a tag, from its `<`; `None` if the text begins no tag.
    pub(super) fn at(text: &str) -> Option<AttributeCounter> {
        let rest = text.strip_prefix('<')?;
        let name = rest.strip_prefix('/').unwrap_or(rest);
        let is_tag = name.starts_with(|first: char| first.is_ascii_alphabetic());
        is_tag.then_some(AttributeCounter { state: State::TagOpen, count: 0 })
    }

    /// Reads more text, in which the tag may end.
    pub(super) fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        let is_space = matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | b' ');
        self.state = match (self.state, byte) {
            (State::End, _) => State::End,
            (State::Quoted(quote), _) if byte == quote => State::BeforeName,
            (State::Quoted(quote), _) => State::Quoted(quote),
            (State::BeforeValue, b'"' | b'\'') => State::Quoted(byte),
            (State::BeforeValue, _) if is_space => State::BeforeValue,
            (_, b'>') => State::End,
            (State::BeforeValue, _) => State::Unquoted,
            (State::Unquoted, _) if is_space => State::BeforeName,
            (State::Unquoted, _) => State::Unquoted,
            (State::TagOpen, b'<' | b'/') => State::TagOpen,
            (State::TagOpen, _) => State::TagName,
            (State::TagName, _) if is_space || byte == b'/' => State::BeforeName,
            (State::TagName, _) => State::TagName,
            (State::Name | State::AfterName, b'=') => State::BeforeValue,
            (State::Name | State::AfterName, _) if is_space => State::AfterName,
            (State::Name | State::AfterName, b'/') => State::BeforeName,
            (State::Name, _) => State::Name,
            (State::BeforeName, b'/') => State::BeforeName,
            (State::BeforeName, _) if is_space => State::BeforeName,
            (State::BeforeName | State::AfterName, _) => {
                self.count += 1;
                State::Name
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_counted_as_the_standard_says() {
        for (text, count) in [
            ("<a", Some(0)),
            ("</b x", Some(1)),
            ("<a b c=d e='f g' h=\"i j\"k l = m n/o", Some(8)),
            ("<a =\" b c", Some(3)),
            ("<a ='x y' b", Some(3)),
            ("<a b=/c/ d", Some(2)),
            ("<a b>c d</a>", Some(1)),
            ("<a b='>' c>d", Some(2)),
            ("<a b=>c d", Some(1)),
            ("<a b c= 'd e' f", Some(3)),
            ("<!-- a b", None),
            ("< a", None),
            ("text", None),
        ] {
            let counter = AttributeCounter::at(text).map(|mut counter| {
                counter.read(text);
                counter.count
            });
            assert_eq!(counter, count, "{text}");
        }
    }
}
