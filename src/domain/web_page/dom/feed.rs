//! Feed of the parser: stops a page at the first bound that it exceeds, before the work is done.

use std::cell::Cell;

use html5ever::buffer_queue::BufferQueue;
use html5ever::interface::{TokenizerResult, Tracer};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts, TreeSink};
use thiserror::Error;

use super::arena::DomArena;
use super::attributes::AttributeCounter;
use super::builder::{DomBuilder, Handle};

/// Most elements that are open at one place of a page; open formatting elements count twice.
pub const DEPTH_MAX: usize = 512;
/// Most nodes of a page.
pub const NODES_MAX: usize = 100_000;
/// Most attributes of a page.
pub const ATTRIBUTES_MAX: usize = 100_000;
/// Most attributes of one tag.
pub const TAG_ATTRIBUTES_MAX: usize = 256;
/// Most controls of a page.
pub const CONTROLS_MAX: usize = 2000;
/// Most steps of the parser for a page: each tag and text costs as many as there are open elements.
const STEPS_MAX: usize = 8_000_000;
/// Longest text that is fed at once, in bytes.
const PIECE_BYTES_MAX: usize = 4096;
/// Longest beginning of a tag that is fed at once, in bytes: it shows where a `<` is text, as in scripts.
const BEGINNING_BYTES_MAX: usize = 64;

const CONTROLS: [&str; 7] = ["button", "fieldset", "input", "object", "output", "select", "textarea"];
/// Elements that the parser opens again behind blocks that they overlap with.
const FORMATTING: [&str; 14] =
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];

/// Bound that a page exceeds.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DomFault {
    /// Elements are nested too deep.
    #[error("The page nests elements deeper than {DEPTH_MAX}.")]
    Depth,
    /// The page has too many nodes.
    #[error("The page has more than {NODES_MAX} nodes.")]
    Nodes,
    /// The page has too many attributes.
    #[error("The page has more than {ATTRIBUTES_MAX} attributes.")]
    Attributes,
    /// A tag has too many attributes.
    #[error("A tag of the page has more than {TAG_ATTRIBUTES_MAX} attributes.")]
    TagAttributes,
    /// The page has too many controls.
    #[error("The page has more than {CONTROLS_MAX} controls.")]
    Controls,
    /// The markup needs too much work.
    #[error("The page's markup takes more than {STEPS_MAX} steps to parse.")]
    Steps,
    /// The parsed page needs too much work.
    #[error(
        "The page takes too many steps to read: its elements refer to each other, or repeat long texts, too often."
    )]
    Walks,
}

/// Parser behind the bounds.
struct Bounded {
    builder: TreeBuilder<Handle, DomBuilder>,
    tokens: Cell<usize>,
    steps: Cell<usize>,
    controls: Cell<usize>,
    fault: Cell<Option<DomFault>>,
}

struct OpenElements(Cell<usize>);

impl Tracer for OpenElements {
    type Handle = Handle;

    fn trace_handle(&self, _: &Handle) {
        self.0.set(self.0.get() + 1);
    }
}

impl Bounded {
    /// Counts what a token costs.
    fn check(&self, token: &Token) -> Result<(), DomFault> {
        let open = OpenElements(Cell::new(0));
        self.builder.trace_handles(&open);
        let open = open.0.get();
        let mut cost = open + 1;
        if let Token::TagToken(tag) = token {
            cost += self.cost_of_tag(tag, open)?;
        }
        self.steps.set(self.steps.get() + cost);
        let sink = &self.builder.sink;
        if open > DEPTH_MAX {
            Err(DomFault::Depth)
        } else if sink.nodes() > NODES_MAX {
            Err(DomFault::Nodes)
        } else if sink.attributes() > ATTRIBUTES_MAX {
            Err(DomFault::Attributes)
        } else if self.steps.get() + sink.moved() > STEPS_MAX {
            Err(DomFault::Steps)
        } else {
            Ok(())
        }
    }

    fn cost_of_tag(&self, tag: &Tag, open: usize) -> Result<usize, DomFault> {
        if tag.kind == TagKind::StartTag && CONTROLS.contains(&&*tag.name) {
            self.controls.set(self.controls.get() + 1);
            if self.controls.get() > CONTROLS_MAX {
                return Err(DomFault::Controls);
            }
        }
        if !FORMATTING.contains(&&*tag.name) {
            return Ok(0);
        }
        // each is compared with all open ones, attribute by attribute; an end tag rebuilds the blocks inside
        Ok(open * if tag.kind == TagKind::StartTag { 2 * tag.attrs.len() } else { 16 })
    }
}

impl TokenSink for Bounded {
    type Handle = Handle;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Handle> {
        if matches!(token, Token::ParseError(_)) {
            return TokenSinkResult::Continue;
        }
        self.tokens.set(self.tokens.get() + 1);
        if self.fault.get().is_none() {
            match self.check(&token) {
                Ok(()) => return self.builder.process_token(token, line),
                Err(fault) => self.fault.set(Some(fault)),
            }
        }
        TokenSinkResult::Continue
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }

    fn end(&self) {
        if self.fault.get().is_none() {
            self.builder.end();
        }
    }
}

/// Token that has begun and is not complete.
enum OpenToken {
    Tag(AttributeCounter),
    /// Comment, doctype or CDATA section: tags in it are text.
    Other,
}

impl OpenToken {
    /// Returns the token that a piece begins. Some, such as `</>`, end without having been one.
    fn at(piece: &str) -> Option<OpenToken> {
        let is_other = piece.starts_with("<!") || piece.starts_with("<?");
        match AttributeCounter::at(piece) {
            Some(counter) => Some(OpenToken::Tag(counter)),
            None => is_other.then_some(OpenToken::Other),
        }
    }
}

/// Parses a page into an arena.
///
/// # Errors
/// The bound that the page exceeds.
pub(super) fn parse(text: &str) -> Result<DomArena, DomFault> {
    let options = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let bounded = Bounded {
        builder: TreeBuilder::new(DomBuilder::new(), options),
        tokens: Cell::new(0),
        steps: Cell::new(0),
        controls: Cell::new(0),
        fault: Cell::new(None),
    };
    let tokenizer = Tokenizer::new(bounded, TokenizerOpts::default());
    let queue = BufferQueue::default();
    let feed = |text: &str| {
        queue.push_back(StrTendril::from_slice(text));
        while !matches!(tokenizer.feed(&queue), TokenizerResult::Done) {}
    };
    let mut open = None;
    for piece in pieces(text) {
        // a piece has no `<` but at its beginning: where it completes a token, none is open at its end
        open = open.or_else(|| OpenToken::at(piece));
        if let Some(OpenToken::Tag(counter)) = &mut open {
            counter.read(piece);
            if counter.count > TAG_ATTRIBUTES_MAX {
                return Err(DomFault::TagAttributes);
            }
        }
        // `<` alone: it completes a text that ended in `&`
        let (first, rest) = piece.split_at_checked(usize::from(piece.starts_with('<'))).unwrap_or_default();
        feed(first);
        let before = tokenizer.sink.tokens.get();
        feed(rest);
        if let Some(fault) = tokenizer.sink.fault.get() {
            return Err(fault);
        }
        if tokenizer.sink.tokens.get() != before {
            open = None;
        }
    }
    tokenizer.end();
    match tokenizer.sink.fault.get() {
        Some(fault) => Err(fault),
        None => Ok(tokenizer.sink.builder.sink.finish()),
    }
}

/// Returns the pieces of a text: each ends before a `<`, or where it would be too long.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let most = if rest.starts_with('<') { BEGINNING_BYTES_MAX } else { PIECE_BYTES_MAX };
        let most = rest.floor_char_boundary(most);
        let next = rest.bytes().take(most).skip(1).position(|byte| byte == b'<').map_or(most, |at| at + 1);
        let (piece, after) = rest.split_at_checked(next)?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}
