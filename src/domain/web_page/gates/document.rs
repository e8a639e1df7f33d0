//! Documents of a Global Policy, one for each way in which a page delivers them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::tokens::{InputChannels, OutputTokens};
use crate::domain::json;
use crate::domain::web_page::dom::DomSelector;

/// Longest document, in bytes.
pub const POLICY_BYTES_MAX: usize = 64 * 1024;
/// Most selectors of one document, of each kind.
const SELECTORS_MAX: usize = 24;
/// Most categories with rules.
const CATEGORIES_MAX: usize = 100;
/// Most forms that one document maps to schemas.
const SCHEMAS_MAX: usize = 64;

/// Fault of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocumentFault {
    /// The text is no policy.
    Malformed,
    /// The policy has a constraint that cannot be kept here: an unsupported selector, or too many of them.
    Unsupported,
}

/// Rule that an element needs another one in the page.
#[derive(Clone, Debug)]
pub(super) struct CoOccurrence {
    pub(super) trigger: DomSelector,
    pub(super) requires: DomSelector,
    /// True if a missing element hides the whole page, not only the one that needs it.
    pub(super) is_fatal: bool,
}

/// Ceilings of a category, or defaults of a document; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ceiling {
    pub(super) input: Option<InputChannels>,
    pub(super) output: Option<OutputTokens>,
}

/// Read document. `report-only` is not among its members: a violation is never allowed because it is reported.
#[derive(Clone, Debug, Default)]
pub(super) struct WamDocument {
    pub(super) defaults: Ceiling,
    pub(super) blocked: Vec<DomSelector>,
    pub(super) categories: BTreeMap<String, Ceiling>,
    pub(super) dependencies: Vec<CoOccurrence>,
    /// Selectors of forms with the URLs of their schemas, as written.
    pub(super) tool_schemas: Vec<(DomSelector, String)>,
}

impl WamDocument {
    /// Reads a document. Unknown members say nothing.
    pub(super) fn read(text: &str) -> Result<WamDocument, DocumentFault> {
        if text.len() > POLICY_BYTES_MAX || json::members(text.trim()).is_err() {
            return Err(DocumentFault::Malformed);
        }
        let Ok(Value::Object(root)) = serde_json::from_str(text) else {
            return Err(DocumentFault::Malformed);
        };
        let mut read = WamDocument::default();
        if let Some(defaults) = object(&root, "defaults")? {
            read.defaults = ceiling(defaults)?;
        }
        if let Some(constraints) = object(&root, "constraints")? {
            read.constrain(constraints)?;
        }
        for (selector, url) in object(&root, "tool-schemas")?.into_iter().flatten().take(SCHEMAS_MAX) {
            let url = url.as_str().ok_or(DocumentFault::Malformed)?;
            // schemas are advice, so one that cannot be placed is left out
            if let Ok(selector) = DomSelector::parse(selector) {
                read.tool_schemas.push((selector, url.to_owned()));
            }
        }
        Ok(read)
    }

    fn constrain(&mut self, constraints: &Map<String, Value>) -> Result<(), DocumentFault> {
        for text in array(constraints, "block-selectors")? {
            self.blocked.push(selector(Some(text))?);
        }
        for (category, rule) in object(constraints, "category-rules")?.into_iter().flatten() {
            let rule = rule.as_object().ok_or(DocumentFault::Malformed)?;
            self.categories.insert(category.clone(), ceiling(rule)?);
        }
        for rule in array(constraints, "dependencies")? {
            let rule = rule.as_object().ok_or(DocumentFault::Malformed)?;
            if rule.get("scope").is_some_and(|scope| scope == "output") {
                continue;
            }
            self.dependencies.push(CoOccurrence {
                trigger: selector(rule.get("trigger"))?,
                requires: selector(rule.get("requires"))?,
                is_fatal: rule.get("failure-mode").is_some_and(|mode| mode == "error"),
            });
        }
        let is_too_long = self.blocked.len() > SELECTORS_MAX
            || self.dependencies.len() > SELECTORS_MAX
            || self.categories.len() > CATEGORIES_MAX;
        if is_too_long { Err(DocumentFault::Unsupported) } else { Ok(()) }
    }
}

fn selector(text: Option<&Value>) -> Result<DomSelector, DocumentFault> {
    let text = text.and_then(Value::as_str).ok_or(DocumentFault::Malformed)?;
    DomSelector::parse(text).map_err(|_| DocumentFault::Unsupported)
}

fn ceiling(rule: &Map<String, Value>) -> Result<Ceiling, DocumentFault> {
    let tokens = |name: &str| -> Result<Option<Vec<&str>>, DocumentFault> {
        let Some(value) = rule.get(name) else { return Ok(None) };
        let list = value.as_array().ok_or(DocumentFault::Malformed)?;
        let words = list.iter().map(|token| token.as_str().ok_or(DocumentFault::Malformed));
        words.collect::<Result<Vec<_>, _>>().map(Some)
    };
    let input = tokens("wam-policy-input")?.map(|words| InputChannels::of(words.into_iter()));
    let output = tokens("wam-policy-output")?.map(|words| OutputTokens::of(words.into_iter()));
    Ok(Ceiling { input, output })
}

fn object<'a>(
    of: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a Map<String, Value>>, DocumentFault> {
    match of.get(name) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(DocumentFault::Malformed),
    }
}

fn array<'a>(of: &'a Map<String, Value>, name: &str) -> Result<&'a [Value], DocumentFault> {
    match of.get(name) {
        None => Ok(&[]),
        Some(Value::Array(array)) => Ok(array),
        Some(_) => Err(DocumentFault::Malformed),
    }
}
