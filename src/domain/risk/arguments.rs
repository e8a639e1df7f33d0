//! Signals in the arguments of a call, found in one pass over their text.

use super::{RiskSignal, Signals};
use crate::domain::json::lexer::Lexer;
use crate::domain::json::{DEPTH_MAX, JsonFault};
use crate::domain::redact::MASK;

/// Longest list that is nothing special, in elements.
const LIST_ELEMENTS_MAX: usize = 50;
/// Longest text that may be a name with a wildcard, in bytes.
const WILDCARD_BYTES_MAX: usize = 300;
/// Most words between `UPDATE` and its `SET`.
const UPDATE_WORDS_MAX: u8 = 4;

/// Members that, set to true, make a call reach further.
const FORCING: [&str; 8] =
    ["force", "recursive", "all", "cascade", "hard", "overwrite", "purge", "no_confirm"];
/// Members that hold money or accounts.
const MONEY: [&str; 5] = ["amount", "price", "payment", "iban", "currency"];
/// Members that hold commands.
const COMMANDS: [&str; 8] = ["command", "cmd", "commands", "script", "shell", "bash", "exec", "argv"];
/// Longest word that means something, in bytes.
const WORD_BYTES_MAX: usize = 10;

/// Meaning that a word may have, depending on what is around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Begins a statement that drops or alters.
    Alters,
    Truncate,
    Delete,
    Update,
    From,
    Set,
    Where,
    /// Object that statements drop, truncate, alter and grant.
    SqlObject,
    /// Folder of the system, at the beginning of a path.
    SystemFolder,
    /// Name of a hidden file or folder with keys or credentials, after its dot.
    Hidden,
    /// Name of a file with a private key.
    KeyFile,
    Remove,
    /// Command that takes rights, stops the machine or destroys disks.
    Hostile,
    Downloader,
    Interpreter,
    /// Option that makes a removal reach further.
    Far,
    Other,
}

impl Token {
    fn of(word: &str) -> Token {
        let mut buffer = [0; WORD_BYTES_MAX];
        let Some(lower) = buffer.get_mut(..word.len()) else { return Token::Other };
        lower.copy_from_slice(word.as_bytes());
        lower.make_ascii_lowercase();
        match &*lower {
            b"drop" | b"alter" | b"grant" => Token::Alters,
            b"truncate" => Token::Truncate,
            b"delete" => Token::Delete,
            b"update" => Token::Update,
            b"from" => Token::From,
            b"set" => Token::Set,
            b"where" => Token::Where,
            b"table" | b"database" | b"schema" | b"index" | b"view" | b"user" | b"role" | b"column"
            | b"sequence" | b"function" | b"all" | b"owned" => Token::SqlObject,
            b"etc" | b"root" | b"boot" | b"proc" | b"sys" | b"windows" => Token::SystemFolder,
            b"ssh" | b"env" | b"aws" | b"kube" | b"gnupg" | b"netrc" | b"npmrc" | b"pgpass" | b"docker" => {
                Token::Hidden
            }
            b"id_rsa" | b"id_ed25519" => Token::KeyFile,
            b"rm" => Token::Remove,
            b"sudo" | b"su" | b"doas" | b"mkfs" | b"dd" | b"shred" | b"fdisk" | b"shutdown" | b"reboot"
            | b"eval" => Token::Hostile,
            b"curl" | b"wget" => Token::Downloader,
            b"sh" | b"bash" | b"zsh" | b"python" | b"python3" | b"perl" | b"node" => Token::Interpreter,
            b"recursive" | b"force" => Token::Far,
            _ => Token::Other,
        }
    }
}

/// Receiver of the signals of a scan.
pub(super) trait SignalSink {
    /// Takes the text in which the next signals are, a value of the member `member` or of a list in it.
    fn text(&mut self, member: &str, text: &str);

    /// Takes a signal at the byte `at` of this text.
    fn signal(&mut self, signal: RiskSignal, at: usize);
}

impl SignalSink for Signals {
    fn text(&mut self, _member: &str, _text: &str) {}

    fn signal(&mut self, signal: RiskSignal, _at: usize) {
        self.add(signal);
    }
}

/// Reports the signals of the arguments. `are_commands` is true if the tool runs its strings as commands. Masked arguments, which may be
/// no JSON any more, are read as far as they are.
pub(super) fn scan(arguments: &str, are_commands: bool, sink: &mut impl SignalSink) {
    let mut scan = Scan { lexer: Lexer::new(arguments), sink, words: Words::default(), at: 0, depth: 0 };
    // what is broken has no meaning to be found
    drop(scan.value("", are_commands));
}

struct Scan<'a, 'f, S> {
    lexer: Lexer<'a>,
    sink: &'f mut S,
    words: Words,
    /// Byte of the text up to which it was read.
    at: usize,
    /// Number of arrays and objects around the value.
    depth: usize,
}

impl<S: SignalSink> Scan<'_, '_, S> {
    /// Reads a value, of the member `name`.
    fn value(&mut self, name: &str, is_command: bool) -> Result<(), JsonFault> {
        self.lexer.skip_space();
        match self.lexer.peek() {
            Some(b'{') => self.nested(|scan| scan.object(is_command))?,
            Some(b'[') => self.nested(|scan| scan.array(name, is_command))?,
            Some(b'"') => {
                let text = self.lexer.string()?.unescape();
                self.text(name, &text, is_command);
            }
            _ => {
                let start = self.lexer.pos();
                self.lexer.scalar()?;
                if self.lexer.slice(start..self.lexer.pos()) == "true" && is_any(name, &FORCING) {
                    self.sink.text(name, "true");
                    self.sink.signal(RiskSignal::Force, 0);
                }
            }
        }
        self.lexer.skip_space();
        Ok(())
    }

    /// Reads an array or object, unless there are too many around it: masked arguments can have more than the check lets through.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<(), JsonFault>) -> Result<(), JsonFault> {
        if self.depth == DEPTH_MAX {
            return Err(JsonFault::TooDeep);
        }
        self.depth += 1;
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, name: &str, is_command: bool) -> Result<(), JsonFault> {
        let start = self.lexer.pos();
        if self.lexer.slice(start..start + MASK.len()) == MASK {
            // a value that is no text is masked whole
            self.lexer.move_to(start + MASK.len());
            return Ok(());
        }
        self.lexer.step();
        self.lexer.skip_space();
        let mut count = 0;
        while !self.lexer.take(b']') {
            if count > 0 {
                self.lexer.expect(b',')?;
            }
            self.value(name, is_command)?;
            count += 1;
            if count == LIST_ELEMENTS_MAX + 1 {
                self.sink.text(name, "");
                self.sink.signal(RiskSignal::LongList, 0);
            }
        }
        Ok(())
    }

    fn object(&mut self, is_command: bool) -> Result<(), JsonFault> {
        self.lexer.step();
        self.lexer.skip_space();
        let mut is_first = true;
        while !self.lexer.take(b'}') {
            if !is_first {
                self.lexer.expect(b',')?;
                self.lexer.skip_space();
            }
            is_first = false;
            let name = self.lexer.string()?.unescape();
            self.lexer.skip_space();
            self.lexer.expect(b':')?;
            if is_any(&name, &MONEY) {
                self.sink.text(&name, "");
                self.sink.signal(RiskSignal::Money, 0);
            }
            self.words = Words::default();
            self.value(&name, is_command || is_any(&name, &COMMANDS))?;
        }
        Ok(())
    }

    /// Looks at a text. Elements of one list are read as one command, so the words before are kept.
    fn text(&mut self, member: &str, text: &str, is_command: bool) {
        self.sink.text(member, text);
        self.at = 0;
        let is_line = is_command || !text.contains('\n');
        if text.len() <= WILDCARD_BYTES_MAX && text.contains('*') && !text.contains(char::is_whitespace) {
            self.sink.signal(RiskSignal::Wildcard, text.find('*').unwrap_or_default());
        }
        self.words.begin_statement();
        let bytes = text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            let at = self.at;
            if !is_word(*byte) {
                self.mark(text, is_command);
                self.at += 1;
                continue;
            }
            let length = bytes.iter().skip(at).take_while(|byte| is_word(**byte)).count();
            // word bytes are ASCII, so both ends are borders of characters
            let word = text.get(at..at + length).unwrap_or_default();
            let token = Token::of(word);
            let before = bytes.get(..at).unwrap_or_default();
            self.sql(token);
            if is_line {
                self.path(token, before);
            }
            if is_command && self.words.is_hostile(word, token, before.ends_with(b"-")) {
                self.sink.signal(RiskSignal::HostileCommand, self.at);
            }
            self.at += length;
        }
        self.end_statement();
    }

    /// Looks at the byte in its place, which is no part of a word.
    fn mark(&mut self, text: &str, is_command: bool) {
        let at = self.at;
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        match rest {
            [b';', ..] => self.end_statement(),
            [b'=', ..] if self.words.sql == Sql::Set => self.words.sql = Sql::AllRows,
            [b':', b'/', b'/', ..] if is_private_host(host(text.get(at + 3..).unwrap_or_default())) => {
                self.sink.signal(RiskSignal::PrivateUrl, self.at);
            }
            [b'-', b'-', ..] | [b'/', b'*', ..] => self.words.is_commented = true,
            _ => {}
        }
        if is_command && matches!(rest, [b';' | b'|' | b'&' | b'`' | b'$' | b'<' | b'>' | b'\n', ..]) {
            self.sink.signal(RiskSignal::ShellCharacters, self.at);
            self.words.is_piped |= self.words.has_download && rest.starts_with(b"|");
        }
    }

    /// Follows the statement that the words may be.
    fn sql(&mut self, token: Token) {
        let words = &mut self.words;
        if matches!(token, Token::Delete | Token::Update) {
            words.statement = self.at;
        }
        words.sql = match (words.sql, token) {
            (_, Token::Alters) => Sql::Structure,
            // nothing but its place tells the statement from the word
            (_, Token::Truncate) if !words.is_begun => {
                self.sink.signal(RiskSignal::SqlStructure, self.at);
                Sql::None
            }
            (_, Token::Delete) => Sql::Delete,
            (_, Token::Update) => Sql::Update(UPDATE_WORDS_MAX),
            (Sql::Structure, _) => {
                if token == Token::SqlObject {
                    self.sink.signal(RiskSignal::SqlStructure, self.at);
                }
                Sql::None
            }
            (Sql::Delete, Token::From) => Sql::AllRows,
            (Sql::Delete, _) => Sql::None,
            (Sql::Update(_), Token::Set) => Sql::Set,
            (Sql::Update(left), _) => left.checked_sub(1).map_or(Sql::None, Sql::Update),
            (Sql::AllRows, Token::Where) if !words.is_commented => Sql::SomeRows,
            (state, _) => state,
        };
        words.is_begun = true;
    }

    fn end_statement(&mut self) {
        if self.words.sql == Sql::AllRows {
            self.sink.signal(RiskSignal::SqlAllRows, self.words.statement);
        }
        self.words.begin_statement();
    }

    /// Looks for paths of the system and of credentials; `before` is the text before the word.
    fn path(&mut self, token: Token, before: &[u8]) {
        let begins = |rest: &[u8]| {
            rest.last().is_none_or(|byte| !is_word(*byte) && !matches!(byte, b'.' | b'~' | b'-'))
        };
        let is_there = match (token, before) {
            (Token::KeyFile, _) | (Token::SystemFolder, [.., b':', b'\\']) => true,
            (Token::SystemFolder, [rest @ .., b'/']) | (Token::Hidden, [rest @ .., b'.']) => begins(rest),
            _ => before.ends_with(b"../"),
        };
        if is_there {
            self.sink.signal(RiskSignal::SystemPath, self.at);
        }
    }
}

/// Words that were read before, of one text or of the texts of one list.
#[derive(Default)]
struct Words {
    sql: Sql,
    /// Byte at which the statement began that deletes or updates.
    statement: usize,
    /// True after the first word of a statement.
    is_begun: bool,
    /// True after the beginning of a comment in a statement, which may hide its `WHERE`.
    is_commented: bool,
    is_removing: bool,
    has_download: bool,
    is_piped: bool,
}

/// Statement as far as it was read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sql {
    #[default]
    None,
    Structure,
    Delete,
    Update(u8),
    Set,
    AllRows,
    SomeRows,
}

impl Words {
    fn begin_statement(&mut self) {
        (self.sql, self.is_begun, self.is_commented) = (Sql::None, false, false);
    }

    /// Takes a word of a command and returns whether it makes the command hostile.
    fn is_hostile(&mut self, word: &str, token: Token, is_option: bool) -> bool {
        if is_option {
            let is_short = word.bytes().all(|byte| b"rRfFiIvdP".contains(&byte));
            let reaches_far = is_short && word.contains(['r', 'R', 'f', 'F']);
            return self.is_removing && (reaches_far || token == Token::Far);
        }
        self.is_removing |= token == Token::Remove;
        self.has_download |= token == Token::Downloader;
        token == Token::Hostile || (token == Token::Interpreter && self.is_piped)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns the host at the beginning of `user@host:1/path`, with the brackets of an address.
fn host(rest: &str) -> &str {
    let authority = rest.split(|c: char| matches!(c, '/' | '?' | '#' | '\\') || c.is_whitespace()).next();
    let host = authority.unwrap_or_default().rsplit('@').next().unwrap_or_default();
    if host.starts_with('[') { host } else { host.split(':').next().unwrap_or_default() }
}

/// Returns whether a host is of a private network as it is spelled. Names that resolve to one are the egress guard's matter.
fn is_private_host(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_number = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit());
    let second = || host.split('.').nth(1).and_then(|part| part.parse::<u8>().ok());
    is_number
        || host == "localhost"
        || [".localhost", ".local", ".internal"].iter().any(|end| host.ends_with(end))
        || ["0x", "0.", "10.", "127.", "192.168.", "169.254.", "[::", "[fc", "[fd", "[fe8"]
            .iter()
            .any(|start| host.starts_with(start))
        || (host.starts_with("172.") && second().is_some_and(|part| (16..=31).contains(&part)))
}
