//! Gates of WAM: what a page's author permits agents to see and to change, for each element.
//!
//! All layers intersect: Global Policy by header, meta element or file, each ancestor, the element itself. None opens what
//! another one closed. A policy that cannot be read or kept hides the page.

mod document;
#[cfg(test)]
mod tests;
mod tokens;

use std::cell::RefCell;
use std::collections::HashMap;

use url::Url;

use super::dom::{DomNodeId, WebDom};
use super::file::{self, PageFile};
use crate::domain::text_enum::text_enum;
use document::{Ceiling, DocumentFault, WamDocument};
use tokens::{InputChannels, OutputTokens};

/// Most meta elements with policies that a page may have.
const METAS_MAX: usize = 8;

text_enum! {
    /// Reason why a page's policy hides the whole page.
    pub enum PolicyClosed {
        /// The header `WAM-Policy` is no policy.
        Header = "policy_header_malformed",
        /// A file with the policy has another origin, could not be fetched, or holds no policy.
        File = "policy_file_failed",
        /// A file with the policy is still to be fetched.
        FileWanted = "policy_file_wanted",
        /// The policy has a constraint that cannot be kept.
        Unsupported = "policy_unsupported",
        /// An element that the policy requires is missing.
        Dependency = "policy_dependency",
    }
}

/// Answer of the policy to one kind of change of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WamGate {
    /// Some layer permits it, and none forbids it.
    Open,
    /// No layer says anything. WAM's default is that nothing may be changed.
    Unstated,
    /// A layer forbids it.
    Closed,
}

/// Policy in force for an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// True if an agent may know of the element.
    pub is_visible: bool,
    /// True if an agent may see the element's texts.
    pub shows_text: bool,
    /// Setting of values.
    pub data: WamGate,
    /// Ticking, choosing and sending.
    pub interaction: WamGate,
}

/// Delivery of a page's Global Policy by its response.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyHeaders<'a> {
    /// Value of `WAM-Policy`; several headers are joined with commas.
    pub policy: Option<&'a str>,
    /// Value of `WAM-Policy-Src`.
    pub source: Option<&'a str>,
}

/// Policy of a page.
#[derive(Debug)]
pub struct PageGates<'a> {
    dom: &'a WebDom,
    documents: Vec<WamDocument>,
    closed: Option<PolicyClosed>,
    known: RefCell<HashMap<DomNodeId, Layers>>,
}

/// Layers from the document down to an element.
#[derive(Clone, Copy, Debug)]
struct Layers {
    input: InputChannels,
    output: Option<OutputTokens>,
    /// Ceiling that constraints put over `output`. They permit nothing by themselves.
    ceiling: OutputTokens,
    is_blocked: bool,
}

impl<'a> PageGates<'a> {
    /// Reads the policy of a page. URLs of its files that are not among `files` are added to `wanted`.
    pub fn read(
        dom: &'a WebDom,
        page: &Url,
        headers: PolicyHeaders<'_>,
        files: &[PageFile<'_>],
        wanted: &mut Vec<Url>,
    ) -> PageGates<'a> {
        let mut gates = PageGates { dom, documents: Vec::new(), closed: None, known: RefCell::default() };
        if let Some(text) = headers.policy {
            gates.add(WamDocument::read(text), PolicyClosed::Header);
        }
        if let Some(source) = headers.source {
            gates.add_file(source, page, files, wanted);
        }
        let meta = |name: &'static str| {
            dom.descendants(dom.root())
                .filter(|node| dom.is(*node, "meta"))
                .filter(move |node| {
                    dom.attribute(*node, "name").is_some_and(|own| own.trim().eq_ignore_ascii_case(name))
                })
                .filter_map(|node| dom.attribute(node, "content"))
                .take(METAS_MAX + 1)
        };
        for (number, text) in meta("wam-policy").enumerate() {
            match WamDocument::read(text) {
                // a page may not hide its policies behind many others
                _ if number == METAS_MAX => gates.close(PolicyClosed::Unsupported),
                Err(DocumentFault::Malformed) => {}
                read => gates.add(read, PolicyClosed::Unsupported),
            }
        }
        for (number, source) in meta("wam-policy-src").enumerate() {
            match number {
                METAS_MAX => gates.close(PolicyClosed::Unsupported),
                _ => gates.add_file(source, page, files, wanted),
            }
        }
        gates.check_dependencies();
        gates
    }

    fn add(&mut self, read: Result<WamDocument, DocumentFault>, malformed: PolicyClosed) {
        match read {
            Ok(document) => self.documents.push(document),
            Err(DocumentFault::Malformed) => self.close(malformed),
            Err(DocumentFault::Unsupported) => self.close(PolicyClosed::Unsupported),
        }
    }

    fn add_file(&mut self, source: &str, page: &Url, files: &[PageFile<'_>], wanted: &mut Vec<Url>) {
        match file::find(source, page, files, wanted) {
            file::FileState::Text(text) => self.add(WamDocument::read(text), PolicyClosed::File),
            file::FileState::Wanted => self.close(PolicyClosed::FileWanted),
            file::FileState::Failed | file::FileState::Refused => self.close(PolicyClosed::File),
        }
    }

    fn close(&mut self, why: PolicyClosed) {
        self.closed.get_or_insert(why);
    }

    fn check_dependencies(&mut self) {
        let mut rules = self.documents.iter().flat_map(|document| &document.dependencies);
        let breaks = rules.any(|rule| {
            rule.is_fatal && self.dom.find(&rule.trigger).is_some() && self.dom.find(&rule.requires).is_none()
        });
        if breaks {
            self.close(PolicyClosed::Dependency);
        }
        for document in &mut self.documents {
            // those that are left hide single elements, and need no second search
            document.dependencies.retain(|rule| self.dom.find(&rule.requires).is_none());
        }
    }

    /// Returns why the policy hides the whole page; `None` if it does not.
    pub fn closed(&self) -> Option<PolicyClosed> {
        self.closed
    }

    /// Returns the URLs of schemas that the policy maps to an element, as written, the most authoritative first.
    pub fn schemas(&self, node: DomNodeId) -> impl Iterator<Item = &str> {
        let all = self.documents.iter().flat_map(|document| &document.tool_schemas);
        all.filter(move |(selector, _)| selector.matches(self.dom, node)).map(|(_, url)| url.as_str())
    }

    /// Returns the policy in force for an element.
    pub fn of(&self, node: DomNodeId) -> EffectivePolicy {
        let layers = self.layers(node);
        let gate = |permits: fn(OutputTokens) -> bool| match layers.output {
            Some(output) if permits(output.and(layers.ceiling)) => WamGate::Open,
            Some(_) => WamGate::Closed,
            None if permits(layers.ceiling) => WamGate::Unstated,
            None => WamGate::Closed,
        };
        let is_visible = self.closed.is_none() && !layers.is_blocked && layers.input.has_structure;
        EffectivePolicy {
            is_visible,
            shows_text: is_visible && layers.input.has_text,
            data: gate(|output| output.data),
            interaction: gate(|output| output.interaction),
        }
    }

    /// Returns the layers down to an element. Those of its ancestors are kept, since controls share them.
    fn layers(&self, node: DomNodeId) -> Layers {
        let mut way = vec![node];
        let mut known = self.known.borrow_mut();
        let mut layers = None;
        for above in self.dom.ancestors(node) {
            if let Some(found) = known.get(&above) {
                layers = Some(*found);
                break;
            }
            way.push(above);
        }
        if let Some(found) = known.get(&node) {
            return *found;
        }
        let mut layers = layers.unwrap_or_else(|| self.defaults());
        for node in way.into_iter().rev() {
            layers = self.below(layers, node);
            known.insert(node, layers);
        }
        layers
    }

    fn defaults(&self) -> Layers {
        let mut layers = Layers {
            input: InputChannels::ALL,
            output: None,
            ceiling: OutputTokens { data: true, interaction: true },
            is_blocked: false,
        };
        for document in &self.documents {
            layers.input = layers.input.and(document.defaults.input.unwrap_or(InputChannels::ALL));
            layers.narrow(document.defaults.output);
        }
        layers
    }

    /// Returns the layers of a child from those of its parent.
    fn below(&self, mut layers: Layers, node: DomNodeId) -> Layers {
        let attribute = |name: &str| self.dom.attribute(node, name);
        if let Some(input) = attribute("wam-policy-input") {
            layers.input = layers.input.and(InputChannels::of(input.split_ascii_whitespace()));
        }
        layers
            .narrow(attribute("wam-policy-output").map(|out| OutputTokens::of(out.split_ascii_whitespace())));
        if attribute("wam-policy-license").is_some_and(|licence| !tokens::is_open_licence(licence)) {
            layers.ceiling = OutputTokens::NONE;
        }
        for document in &self.documents {
            layers.is_blocked |= document.blocked.iter().any(|selector| selector.matches(self.dom, node));
            let mut needs = document.dependencies.iter();
            layers.is_blocked |= needs.any(|rule| rule.trigger.matches(self.dom, node));
            let categories = attribute("wam-intent-category").unwrap_or_default();
            for category in categories.split_ascii_whitespace() {
                let Ceiling { input, output } =
                    document.categories.get(category).copied().unwrap_or_default();
                layers.input = layers.input.and(input.unwrap_or(InputChannels::ALL));
                layers.ceiling = layers.ceiling.and(output.unwrap_or(layers.ceiling));
            }
        }
        layers
    }
}

impl Layers {
    fn narrow(&mut self, output: Option<OutputTokens>) {
        if let Some(output) = output {
            self.output = Some(self.output.map_or(output, |before| before.and(output)));
        }
    }
}
