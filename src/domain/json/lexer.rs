//! Lexer for the tokens of RFC 8259, without copying.

use std::borrow::Cow;
use std::ops::Range;

use super::JsonFault;
use super::text::{decode_escape, plain_end};

/// String literal without its quotes.
#[derive(Debug, Clone, Copy)]
pub(in crate::domain) struct RawString<'a> {
    /// The text between the quotes, escapes as written.
    pub(in crate::domain) raw: &'a str,
    /// True if the literal has an escape.
    pub(in crate::domain) escaped: bool,
}

impl<'a> RawString<'a> {
    /// Returns the text that the literal spells; a lone surrogate escape reads as U+FFFD.
    pub(in crate::domain) fn unescape(self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut out = String::with_capacity(self.raw.len());
        let mut rest = self.raw;
        while let Some((plain, tail)) = rest.split_once('\\') {
            out.push_str(plain);
            let (decoded, length) = decode_escape(tail);
            out.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = tail.get(length..).unwrap_or_default();
        }
        out.push_str(rest);
        Cow::Owned(out)
    }
}

/// Reading position in a JSON text.
#[derive(Debug)]
pub(in crate::domain) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Lexer<'a> {
    pub(in crate::domain) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), pos: 0 }
    }

    pub(in crate::domain) fn pos(&self) -> usize {
        self.pos
    }

    pub(in crate::domain) fn at_end(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    pub(in crate::domain) fn fault(&self) -> JsonFault {
        JsonFault::Syntax { offset: self.pos }
    }

    /// Returns the text of a range between two token borders, which are always borders of characters.
    pub(in crate::domain) fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    pub(in crate::domain) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    pub(in crate::domain) fn step(&mut self) {
        self.pos += 1;
    }

    pub(in crate::domain) fn move_to(&mut self, pos: usize) {
        self.pos = pos;
    }

    pub(in crate::domain) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    pub(in crate::domain) fn expect(&mut self, byte: u8) -> Result<(), JsonFault> {
        if self.take(byte) { Ok(()) } else { Err(self.fault()) }
    }

    pub(in crate::domain) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.pos += 1;
        }
    }

    /// Reads a string literal.
    pub(in crate::domain) fn string(&mut self) -> Result<RawString<'a>, JsonFault> {
        self.expect(b'"')?;
        let start = self.pos;
        let mut escaped = false;
        loop {
            self.pos = plain_end(self.bytes, self.pos);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.fault()),
            }
        }
        let raw = self.slice(start..self.pos);
        self.pos += 1;
        Ok(RawString { raw, escaped })
    }

    fn escape(&mut self) -> Result<(), JsonFault> {
        self.pos += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.pos += 1;
                Ok(())
            }
            Some(b'u') => {
                let digits = self.bytes.get(self.pos + 1..self.pos + 5);
                if !digits.is_some_and(|four| four.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(self.fault());
                }
                self.pos += 5;
                Ok(())
            }
            _ => Err(self.fault()),
        }
    }

    /// Reads a number, `true`, `false` or `null`.
    pub(in crate::domain) fn scalar(&mut self) -> Result<(), JsonFault> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => Err(self.fault()),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonFault> {
        if !self.bytes.get(self.pos..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.fault());
        }
        self.pos += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonFault> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonFault> {
        let start = self.pos;
        while let Some(b'0'..=b'9') = self.peek() {
            self.pos += 1;
        }
        if self.pos == start { Err(self.fault()) } else { Ok(()) }
    }
}
