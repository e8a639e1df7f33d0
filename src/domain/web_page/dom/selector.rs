//! Selectors of elements: compounds of type, `#id`, `.class`, `[attribute]` and `[attribute=value]`, joined
//! by a space or `>`, in a list with commas.

use thiserror::Error;

use super::{DomNodeId, WebDom};

/// Longest selector, in bytes.
const TEXT_BYTES_MAX: usize = 512;
/// Most compounds of a selector.
const COMPOUNDS_MAX: usize = 16;

/// Fault of a selector's text.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DomSelectorFault {
    /// The text is too long.
    #[error("The selector is longer than {TEXT_BYTES_MAX} bytes or has more than {COMPOUNDS_MAX} parts.")]
    Length,
    /// The text is no selector of the supported kinds.
    #[error(
        "The selector is none of: type, '#id', '.class', '[attribute=value]', joined by ' ', '>' or ','."
    )]
    Unsupported,
}

/// Parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomSelector {
    alternatives: Vec<Vec<Compound>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compound {
    /// True if the element has to be a child of what the compound before matches, not any descendant.
    is_child: bool,
    tests: Vec<Test>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Any,
    Type(String),
    Id(String),
    Class(String),
    Attribute(String, Option<String>),
}

impl DomSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// For text that is too long or of another kind.
    pub fn parse(text: &str) -> Result<DomSelector, DomSelectorFault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(DomSelectorFault::Length);
        }
        let mut reader = Reader { rest: text };
        let mut alternatives = vec![vec![]];
        let mut compounds = 0;
        let mut is_child = false;
        reader.skip_spaces();
        loop {
            let tests = reader.compound()?;
            compounds += 1;
            if compounds > COMPOUNDS_MAX {
                return Err(DomSelectorFault::Length);
            }
            if let Some(last) = alternatives.last_mut() {
                last.push(Compound { is_child, tests });
            }
            let had_space = reader.skip_spaces();
            is_child = reader.take('>');
            if is_child {
                reader.skip_spaces();
            } else if reader.take(',') {
                reader.skip_spaces();
                alternatives.push(vec![]);
            } else if reader.rest.is_empty() {
                return Ok(DomSelector { alternatives });
            } else if !had_space {
                return Err(DomSelectorFault::Unsupported);
            }
        }
    }

    /// Returns whether an element matches.
    pub fn matches(&self, dom: &WebDom, node: DomNodeId) -> bool {
        self.alternatives.iter().any(|compounds| matches_all(dom, node, compounds))
    }
}

/// Returns whether the last compound matches a node, and those before it elements above.
fn matches_all(dom: &WebDom, node: DomNodeId, compounds: &[Compound]) -> bool {
    let mut rest = compounds;
    let mut below = None;
    while !rest.is_empty() {
        let start = rest.iter().rposition(|compound| !compound.is_child).unwrap_or_default();
        let Some((before, chain)) = rest.split_at_checked(start) else { return false };
        // the nearest place leaves the most elements for what is before
        let top = match below {
            None => top_of_chain(dom, node, chain),
            Some(below) => dom.ancestors(below).find_map(|node| top_of_chain(dom, node, chain)),
        };
        let Some(top) = top else { return false };
        (below, rest) = (Some(top), before);
    }
    below.is_some()
}

/// Returns the topmost element of a chain of children whose last one is a node.
fn top_of_chain(dom: &WebDom, node: DomNodeId, chain: &[Compound]) -> Option<DomNodeId> {
    let mut at = Some(node);
    let mut top = None;
    for compound in chain.iter().rev() {
        top = at.filter(|node| compound.matches(dom, *node));
        at = dom.parent(top?);
    }
    top
}

impl Compound {
    fn matches(&self, dom: &WebDom, node: DomNodeId) -> bool {
        dom.is_element(node) && self.tests.iter().all(|test| test.matches(dom, node))
    }
}

impl Test {
    fn matches(&self, dom: &WebDom, node: DomNodeId) -> bool {
        match self {
            Test::Any => true,
            Test::Type(name) => dom.name(node).is_some_and(|own| own.eq_ignore_ascii_case(name)),
            Test::Id(id) => dom.attribute(node, "id") == Some(id),
            Test::Class(class) => dom
                .attribute(node, "class")
                .is_some_and(|own| own.split_ascii_whitespace().any(|own| own == class)),
            Test::Attribute(name, value) => match (dom.attribute(node, name), value) {
                (Some(own), Some(value)) => own == value,
                (own, _) => own.is_some(),
            },
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn take(&mut self, character: char) -> bool {
        let after = self.rest.strip_prefix(character);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn skip_spaces(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_ascii_start();
        self.rest.len() < before
    }

    fn until(&mut self, is_end: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (found, after) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = after;
        found
    }

    /// Reads an identifier. Escapes are not supported.
    fn identifier(&mut self) -> Result<String, DomSelectorFault> {
        let name = self.until(|c| !(c.is_alphanumeric() || c == '-' || c == '_' || !c.is_ascii()));
        let begins_well = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        begins_well.then(|| name.to_owned()).ok_or(DomSelectorFault::Unsupported)
    }

    fn compound(&mut self) -> Result<Vec<Test>, DomSelectorFault> {
        let mut tests = Vec::new();
        if self.take('*') {
            tests.push(Test::Any);
        } else if !self.rest.starts_with(['#', '.', '[']) {
            tests.push(Test::Type(self.identifier()?));
        }
        loop {
            if self.take('#') {
                tests.push(Test::Id(self.identifier()?));
            } else if self.take('.') {
                tests.push(Test::Class(self.identifier()?));
            } else if self.take('[') {
                tests.push(self.attribute()?);
            } else {
                return Ok(tests);
            }
        }
    }

    fn attribute(&mut self) -> Result<Test, DomSelectorFault> {
        self.skip_spaces();
        let name = self.identifier()?.to_ascii_lowercase();
        self.skip_spaces();
        let mut value = None;
        if self.take('=') {
            self.skip_spaces();
            let quote = ['"', '\''].into_iter().find(|quote| self.take(*quote));
            let text = match quote {
                Some(quote) => {
                    let text = self.until(|c| c == quote || c == '\\').to_owned();
                    let is_closed = self.take(quote);
                    is_closed.then_some(text).ok_or(DomSelectorFault::Unsupported)?
                }
                None => self.identifier()?,
            };
            value = Some(text);
            self.skip_spaces();
        }
        self.take(']').then_some(Test::Attribute(name, value)).ok_or(DomSelectorFault::Unsupported)
    }
}
