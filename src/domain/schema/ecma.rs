//! Translation of patterns from ECMA-262 to the syntax of Rust's engine.
//!
//! Look-around and back-references have no linear-time form and are refused. Capture groups become plain groups.

use std::fmt::Write;

/// Characters that `.` does not match.
const NO_LINE_END: &str = r"[^\n\r\x{2028}\x{2029}]";
/// Characters of `\s`.
const SPACE: &str =
    r"\t\n\x{b}\x{c}\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";

/// Translated pattern.
#[derive(Debug)]
pub(super) struct Translated {
    /// Pattern in Rust's syntax.
    pub(super) text: String,
    /// Number of Unicode property classes in the pattern, which are large.
    pub(super) classes: usize,
}

/// Translates a pattern.
///
/// # Errors
/// A description of the part that is not supported, or not ECMA-262.
pub(super) fn translate(pattern: &str) -> Result<Translated, &'static str> {
    let out = Translated { text: String::with_capacity(pattern.len() * 2), classes: 0 };
    let mut reader = Reader { rest: pattern, out };
    while let Some(next) = reader.take() {
        reader.term(next)?;
    }
    Ok(reader.out)
}

/// Element of a class, or meaning of an escape.
enum Atom {
    Char(char),
    /// Elements of a class, without the brackets.
    Set(String),
    /// Elements of a negated class, without the brackets.
    NotSet(&'static str),
}

struct Reader<'a> {
    rest: &'a str,
    out: Translated,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = self.rest.get(next.len_utf8()..).unwrap_or_default();
        Some(next)
    }

    fn take_if(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn put(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn put_char(&mut self, char: char) {
        put_char(&mut self.out.text, char);
    }

    fn term(&mut self, next: char) -> Result<(), &'static str> {
        match next {
            '.' => self.put(NO_LINE_END),
            '^' => self.put(r"\A"),
            '$' => self.put(r"\z"),
            '|' | ')' => self.put(if next == '|' { "|" } else { ")" }),
            '(' => return self.group(),
            '[' => return self.class(),
            '\\' => return self.escape(),
            '*' | '+' | '?' => {
                self.out.text.push(next);
                return self.after_quantifier();
            }
            '{' => match self.counted() {
                Some(counted) => {
                    self.put(&counted);
                    return self.after_quantifier();
                }
                None => self.put_char('{'),
            },
            other => self.put_char(other),
        }
        Ok(())
    }

    /// Reads the end of a quantifier, which may be lazy, but not itself be quantified.
    fn after_quantifier(&mut self) -> Result<(), &'static str> {
        if self.take_if("?") {
            self.put("?");
        }
        let is_counted = self.peek() == Some('{') && Reader { rest: self.rest, out: empty() }.skips_counted();
        if is_counted || matches!(self.peek(), Some('*' | '+' | '?')) {
            return Err("a quantifier follows another");
        }
        Ok(())
    }

    fn skips_counted(mut self) -> bool {
        self.take();
        self.counted().is_some()
    }

    /// Reads a counted quantifier after its brace: `{n}`, `{n,}`, `{n,m}`; `None` if it is not one.
    fn counted(&mut self) -> Option<String> {
        let (inside, rest) = self.rest.split_once('}')?;
        let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(least) || !(most.is_empty() || is_number(most)) {
            return None;
        }
        self.rest = rest;
        Some(format!("{{{inside}}}"))
    }

    fn group(&mut self) -> Result<(), &'static str> {
        self.put("(?:");
        if !self.rest.starts_with('?') || self.take_if("?:") {
            return Ok(());
        }
        for around in ["?=", "?!", "?<=", "?<!"] {
            if self.rest.starts_with(around) {
                return Err("look-around is not supported");
            }
        }
        let name = self.rest.strip_prefix("?<").and_then(|rest| rest.split_once('>'));
        let is_name = |name: &str| name.chars().all(|char| char.is_alphanumeric() || "_$".contains(char));
        match name {
            Some((name, rest)) if !name.is_empty() && is_name(name) => {
                self.rest = rest;
                Ok(())
            }
            _ => Err("a group is not of ECMA-262"),
        }
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        if self.take_if("b") {
            self.put(r"(?-u:\b)");
            return Ok(());
        }
        if self.take_if("B") {
            self.put(r"(?-u:\B)");
            return Ok(());
        }
        match self.atom()? {
            Atom::Char(char) => self.put_char(char),
            Atom::Set(set) => self.put(&format!("[{set}]")),
            Atom::NotSet(set) => self.put(&format!("[^{set}]")),
        }
        Ok(())
    }

    /// Reads an escape after its backslash, and returns its meaning.
    fn atom(&mut self) -> Result<Atom, &'static str> {
        let next = self.take().ok_or("a backslash ends the pattern")?;
        Ok(match next {
            'd' => Atom::Set(DIGIT.to_owned()),
            'D' => Atom::NotSet(DIGIT),
            'w' => Atom::Set(WORD.to_owned()),
            'W' => Atom::NotSet(WORD),
            's' => Atom::Set(SPACE.to_owned()),
            'S' => Atom::NotSet(SPACE),
            'p' | 'P' => Atom::Set(self.property(next)?),
            't' => Atom::Char('\t'),
            'n' => Atom::Char('\n'),
            'v' => Atom::Char('\u{b}'),
            'f' => Atom::Char('\u{c}'),
            'r' => Atom::Char('\r'),
            '0' if !self.peek().is_some_and(|next| next.is_ascii_digit()) => Atom::Char('\0'),
            'c' => match self.take() {
                Some(letter) if letter.is_ascii_alphabetic() => Atom::Char(char::from(letter as u8 % 32)),
                _ => return Err(r"\c is not followed by a letter"),
            },
            'x' => {
                Atom::Char(self.hex(2).and_then(char::from_u32).ok_or(r"\x is not followed by two digits")?)
            }
            'u' => Atom::Char(self.unicode().ok_or(r"\u does not name a character")?),
            '1'..='9' | 'k' => return Err("back-references are not supported"),
            other if other.is_ascii_alphanumeric() => return Err("an escape is not of ECMA-262"),
            other => Atom::Char(other),
        })
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let (hex, rest) = self.rest.split_at_checked(digits)?;
        let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.rest = if is_hex { rest } else { return None };
        u32::from_str_radix(hex, 16).ok()
    }

    fn unicode(&mut self) -> Option<char> {
        if self.take_if("{") {
            let (hex, rest) = self.rest.split_once('}')?;
            self.rest = rest;
            let is_hex =
                !hex.is_empty() && hex.len() <= 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            return is_hex.then(|| u32::from_str_radix(hex, 16).ok()).flatten().and_then(char::from_u32);
        }
        let high = self.hex(4)?;
        if !(0xd800..0xdc00).contains(&high) || !self.take_if("\\u") {
            return char::from_u32(high);
        }
        let low = self.hex(4).filter(|low| (0xdc00..0xe000).contains(low))?;
        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    }

    fn property(&mut self, letter: char) -> Result<String, &'static str> {
        let inside = self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'=');
        match inside {
            Some((name, rest)) if !name.is_empty() && name.bytes().all(is_name) => {
                self.rest = rest;
                self.out.classes += 1;
                Ok(format!("\\{letter}{{{name}}}"))
            }
            _ => Err(r"\p is not followed by the name of a property"),
        }
    }

    /// Translates a class after its opening bracket.
    fn class(&mut self) -> Result<(), &'static str> {
        let negated = if self.take_if("^") { "^" } else { "" };
        let mut items = String::new();
        loop {
            if self.take_if("]") {
                break;
            }
            let first = self.class_atom()?;
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            if !is_range {
                put_atom(&mut items, &first);
                continue;
            }
            self.take();
            match (first, self.class_atom()?) {
                (Atom::Char(low), Atom::Char(high)) => {
                    put_char(&mut items, low);
                    items.push('-');
                    put_char(&mut items, high);
                }
                (first, last) => {
                    put_atom(&mut items, &first);
                    put_char(&mut items, '-');
                    put_atom(&mut items, &last);
                }
            }
        }
        match (items.is_empty(), negated) {
            (true, "") => self.put("[a&&b]"),
            (true, _) => self.put("(?s:.)"),
            _ => self.put(&format!("[{negated}{items}]")),
        }
        Ok(())
    }

    fn class_atom(&mut self) -> Result<Atom, &'static str> {
        match self.take().ok_or("a class does not end")? {
            '\\' if self.take_if("b") => Ok(Atom::Char('\u{8}')),
            '\\' => self.atom(),
            other => Ok(Atom::Char(other)),
        }
    }
}

fn empty() -> Translated {
    Translated { text: String::new(), classes: 0 }
}

fn put_atom(out: &mut String, atom: &Atom) {
    match atom {
        Atom::Char(char) => put_char(out, *char),
        Atom::Set(set) => out.push_str(set),
        Atom::NotSet(set) => {
            out.push_str("[^");
            out.push_str(set);
            out.push(']');
        }
    }
}

/// Appends a character that matches itself, inside a class or outside.
fn put_char(out: &mut String, char: char) {
    if char.is_ascii_alphanumeric() || !char.is_ascii() {
        out.push(char);
    } else {
        // writing to a string does not fail
        let _written = write!(out, "\\x{{{:x}}}", u32::from(char));
    }
}
