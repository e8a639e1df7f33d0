//! Reading of policy documents. A fault names its place; nothing is ignored, and no text has two readings.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::selectors::{DIMENSIONS, Selectors, all_of, bit};
use super::when::When;
use super::window::{DAYS, TimeWindow, minute, offset};
use super::{
    AskTerms, Assurance, CHANNELS, Choice, DOCUMENT_BYTES_MAX, Effect, GLOBS_MAX, PolicyMode, PolicyRule,
    REMEMBERED, RULES_MAX, RuleSet,
};
use crate::domain::glob::PATTERN_BYTES_MAX;
use crate::domain::json::{self, JsonFault};
use crate::domain::near;

/// Longest id of a rule, in bytes.
const ID_BYTES_MAX: usize = 64;
/// Longest message of a rule, in characters.
const MESSAGE_CHARS_MAX: usize = 300;
/// Times that an ask may stay open, in seconds.
const TTL_S: std::ops::RangeInclusive<u32> = 10..=86_400;
/// Longest part of a wrong name or value that a fault repeats, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// Fault of a policy document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    /// Place in the document, such as `rules[3].match.tool`; empty for the whole.
    pub path: String,
    /// Reason, without the place.
    pub message: String,
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the policy" } else { &self.path };
        write!(f, "{path} {}", self.message)
    }
}

impl std::error::Error for PolicyFault {}

/// Policy document, read and compiled.
#[derive(Debug)]
pub struct PolicyDocument {
    /// Version that the document replaces; `None` when it names none.
    pub version: Option<u32>,
    /// Mode that the document sets; `None` when it names none.
    pub mode: Option<PolicyMode>,
    /// Compiled rules.
    pub rules: RuleSet,
    /// The rules as written, a JSON array, to be stored.
    pub rules_text: String,
}

impl PolicyDocument {
    /// Reads a document `{version?, mode?, rules}`.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str) -> Result<PolicyDocument, PolicyFault> {
        let root = Node { path: String::new(), text };
        root.check_length()?;
        let [version, mode, rules] = root.members(["version", "mode", "rules"])?;
        let rules = rules.ok_or_else(|| root.fault("must have 'rules'"))?;
        let version = version.map(|version| version.whole(&(0..=u32::MAX))).transpose()?;
        let mode = mode.map(|mode| mode.one_of(&PolicyMode::ALL, PolicyMode::as_str)).transpose()?;
        Ok(PolicyDocument { version, mode, rules: read_rules(&rules)?, rules_text: rules.text.to_owned() })
    }
}

impl RuleSet {
    /// Reads the rules of a stored document, a JSON array.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str) -> Result<RuleSet, PolicyFault> {
        let root = Node { path: "rules".to_owned(), text };
        root.check_length()?;
        json::check(text).map_err(|fault| root.json_fault(&fault))?;
        read_rules(&root)
    }
}

fn read_rules(node: &Node<'_>) -> Result<RuleSet, PolicyFault> {
    let items = node.items()?;
    if items.len() > RULES_MAX {
        return Err(node.fault(format!("must have at most {RULES_MAX} rules")));
    }
    let mut ids = HashSet::new();
    let mut rules = Vec::with_capacity(items.len());
    for item in &items {
        let rule = read_rule(item)?;
        if !ids.insert(Arc::clone(&rule.id)) {
            return Err(item.fault(format!("has the id '{}' of a rule before it", rule.id)));
        }
        rules.push(rule);
    }
    Ok(RuleSet::of(rules))
}

fn read_rule(node: &Node<'_>) -> Result<PolicyRule, PolicyFault> {
    let [id, effect, selectors, except, when, ask, enforced, message] =
        node.members(["id", "effect", "match", "except", "when", "ask", "enforced", "message"])?;
    let id = id.ok_or_else(|| node.fault("must have an 'id'"))?;
    let effect = effect.ok_or_else(|| node.fault("must have an 'effect'"))?;
    let effect = effect.one_of(&Effect::ALL, Effect::as_str)?;
    if let Some(ask) = ask.as_ref().filter(|_| effect != Effect::Ask) {
        return Err(ask.fault("is for rules with the effect 'ask' only"));
    }
    let except = except.map(|except| {
        let found = read_selectors(&except)?;
        if found == Selectors::ANY { Err(except.fault("must select something")) } else { Ok(found) }
    });
    let selectors = selectors.map_or(Ok(Selectors::ANY), |node| read_selectors(&node))?;
    let except = except.transpose()?;
    // no word of a client gets past an ask or a deny that names its endpoint, nor past an exception of an allow
    let (selectors, except) = match effect {
        Effect::Allow => (selectors, except.map(Selectors::whatever_the_client_says)),
        Effect::Ask | Effect::Deny => (selectors.whatever_the_client_says(), except),
    };
    let (ask, names_assurance) = read_ask(ask)?;
    let when = when.map(|when| When::compile(&when.string()?).map_err(|why| when.fault(why)));
    Ok(PolicyRule {
        id: read_id(&id)?,
        effect,
        selectors,
        except,
        when: when.transpose()?,
        ask,
        names_assurance,
        is_enforced: enforced.map(|node| node.boolean()).transpose()?.unwrap_or_default(),
        message: message.map(|node| read_message(&node)).transpose()?,
    })
}

fn read_id(node: &Node<'_>) -> Result<Arc<str>, PolicyFault> {
    let id = node.string()?;
    let is_good = id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.len() <= ID_BYTES_MAX
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !is_good {
        let expected = "must be letters, digits, '.', '_' and '-', beginning with a letter or digit";
        return Err(node.fault(format!("{expected}, at most {ID_BYTES_MAX} of them")));
    }
    Ok(id.into())
}

fn read_message(node: &Node<'_>) -> Result<Arc<str>, PolicyFault> {
    let message = node.string()?;
    if message.chars().count() > MESSAGE_CHARS_MAX || message.contains(char::is_control) {
        return Err(node.fault(format!("must be one line of at most {MESSAGE_CHARS_MAX} characters")));
    }
    Ok(message.into())
}

/// Names of selectors in a document.
pub const SELECTORS: [&str; 8] = ["tool", "time", "op", "tier", "risk", "sensitivity", "endpoint", "trust"];

fn read_selectors(node: &Node<'_>) -> Result<Selectors, PolicyFault> {
    let [tool, time, dimensions @ ..] = node.members(SELECTORS)?;
    let mut selectors = Selectors::ANY;
    if let Some(tool) = tool {
        selectors.globs = read_globs(&tool)?;
    }
    for (place, (selected, (_, values))) in dimensions.into_iter().zip(DIMENSIONS).enumerate() {
        if let Some(selected) = selected {
            let chosen = selected.choice(values)?;
            let bits = (0..values.len())
                .filter(|value| chosen >> value & 1 == 1)
                .fold(0, |all, value| all | bit(place, value));
            selectors.bits = (selectors.bits & !all_of(place)) | bits;
        }
    }
    selectors.time = time.map(|time| read_window(&time)).transpose()?;
    Ok(selectors)
}

fn read_globs(node: &Node<'_>) -> Result<Vec<String>, PolicyFault> {
    let globs = node.one_or_more()?;
    if globs.len() > GLOBS_MAX {
        return Err(node.fault(format!("must have at most {GLOBS_MAX} globs")));
    }
    let read = |node: &Node<'_>| {
        let glob = node.string()?;
        if glob.is_empty() || glob.len() > PATTERN_BYTES_MAX {
            return Err(node.fault(format!("must be a glob of at most {PATTERN_BYTES_MAX} bytes")));
        }
        if !glob.contains([':', '*', '?']) {
            return Err(node.fault(format!(
                "can match no tool, for want of a ':': write '{}:*' or '*:{0}'",
                shown(&glob)
            )));
        }
        Ok(glob)
    };
    globs.iter().map(read).collect()
}

fn read_window(node: &Node<'_>) -> Result<TimeWindow, PolicyFault> {
    let [days, from, to, utc_offset] = node.members(["days", "from", "to", "utc_offset"])?;
    if days.is_none() && from.is_none() && to.is_none() {
        return Err(node.fault("must have 'days', 'from' or 'to'"));
    }
    let time = |node: Node<'_>| {
        minute(&node.string()?).ok_or_else(|| node.fault("must be a time of day such as \"08:30\""))
    };
    let zone = |node: Node<'_>| {
        offset(&node.string()?).ok_or_else(|| node.fault("must be a distance from UTC such as \"+02:00\""))
    };
    let window = TimeWindow {
        days: days.map_or(Ok(TimeWindow::ALWAYS.days), |days| days.choice(&DAYS))?,
        from_min: from.map_or(Ok(TimeWindow::ALWAYS.from_min), time)?,
        to_min: to.map_or(Ok(TimeWindow::ALWAYS.to_min), time)?,
        offset_min: utc_offset.map_or(Ok(0), zone)?,
    };
    if window.from_min == window.to_min {
        return Err(node.fault("must have different times in 'from' and 'to'"));
    }
    Ok(window)
}

/// Reads the terms of an ask, and whether they name the assurance.
fn read_ask(node: Option<Node<'_>>) -> Result<(AskTerms, bool), PolicyFault> {
    let Some(node) = node else { return Ok((AskTerms::plain(Assurance::Client, false), false)) };
    let [assurance, ttl_s, remember, channels] =
        node.members(["assurance", "ttl_s", "remember", "channels"])?;
    let names_assurance = assurance.is_some();
    let assurance =
        assurance.map_or(Ok(Assurance::Client), |node| node.one_of(&Assurance::ALL, Assurance::as_str))?;
    let mut terms = AskTerms::plain(assurance, false);
    if let Some(ttl_s) = ttl_s {
        terms.ttl_s = ttl_s.whole(&TTL_S)?;
    }
    // to remember nothing is a choice, to ask by no channel is none
    if let Some(remember) = remember.filter(|node| !node.is_empty_list()) {
        terms.remember = Choice::of(remember.choice(&REMEMBERED)?, REMEMBERED);
    }
    if let Some(channels) = channels {
        terms.channels = Choice::of(channels.choice(&CHANNELS)?, CHANNELS);
    }
    Ok((terms, names_assurance))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// Value in a document, with its place.
struct Node<'a> {
    path: String,
    text: &'a str,
}

impl<'a> Node<'a> {
    fn fault(&self, message: impl Into<String>) -> PolicyFault {
        PolicyFault { path: self.path.clone(), message: message.into() }
    }

    fn json_fault(&self, fault: &JsonFault) -> PolicyFault {
        self.fault(match fault {
            JsonFault::NotAnObject => fault.to_string(),
            JsonFault::DuplicateMember { .. } => format!("has a {fault}"),
            _ => format!("is no JSON that can be read: {fault}"),
        })
    }

    fn check_length(&self) -> Result<(), PolicyFault> {
        let is_good = self.text.len() <= DOCUMENT_BYTES_MAX;
        is_good
            .then_some(())
            .ok_or_else(|| self.fault(format!("must have at most {DOCUMENT_BYTES_MAX} bytes")))
    }

    /// Returns the members called `known`, in that order. Any other member is a fault.
    fn members<const N: usize>(&self, known: [&str; N]) -> Result<[Option<Node<'a>>; N], PolicyFault> {
        let members = json::members_of_text(self.text).map_err(|fault| self.json_fault(&fault))?;
        let mut found = [const { None }; N];
        for member in members {
            let path = if self.path.is_empty() { String::new() } else { format!("{}.", self.path) };
            let path = format!("{path}{}", shown(&member.name));
            let slot = known.iter().zip(&mut found).find(|(name, _)| ***name == *member.name);
            let Some((_, slot)) = slot else {
                let why = match near::closest(&member.name, known.into_iter()) {
                    Some(meant) => format!("is an unknown key; did you mean '{meant}'?"),
                    None => format!("is an unknown key; known: {}", known.join(", ")),
                };
                return Err(PolicyFault { path, message: why });
            };
            *slot = Some(Node { path, text: member.value });
        }
        Ok(found)
    }

    /// Returns the elements of an array.
    fn items(&self) -> Result<Vec<Node<'a>>, PolicyFault> {
        let mut elements = json::elements(self.text).ok_or_else(|| self.fault("must be a list"))?;
        let mut found = Vec::new();
        while let Some(range) = elements.next_range() {
            let text = self.text.get(range).unwrap_or_default();
            found.push(Node { path: format!("{}[{}]", self.path, found.len()), text });
        }
        Ok(found)
    }

    /// Returns the elements of a list that is not empty, or the one value that stands in its place.
    fn one_or_more(&self) -> Result<Vec<Node<'a>>, PolicyFault> {
        if !self.text.starts_with('[') {
            return Ok(vec![Node { path: self.path.clone(), text: self.text }]);
        }
        let items = self.items()?;
        if items.is_empty() { Err(self.fault("must not be an empty list")) } else { Ok(items) }
    }

    fn is_empty_list(&self) -> bool {
        self.items().is_ok_and(|items| items.is_empty())
    }

    fn string(&self) -> Result<String, PolicyFault> {
        serde_json::from_str(self.text).map_err(|_| self.fault("must be a text"))
    }

    fn boolean(&self) -> Result<bool, PolicyFault> {
        self.text.parse().map_err(|_| self.fault("must be true or false"))
    }

    fn whole(&self, range: &std::ops::RangeInclusive<u32>) -> Result<u32, PolicyFault> {
        // `5.0` is a whole number to JSON schemas, and to some programs
        let whole = |number: f64| (number.fract() == 0.0).then_some(number as u32);
        let is_number = self.text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let number = self.text.parse::<f64>().ok().filter(|number| is_number && *number >= 0.0);
        let is_small = |number: &f64| *number <= f64::from(u32::MAX);
        let found = number.filter(is_small).and_then(whole).filter(|number| range.contains(number));
        found.ok_or_else(|| {
            self.fault(format!("must be a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// Reads one of a few names.
    fn name(&self, names: &[&str]) -> Result<usize, PolicyFault> {
        let name = self.string()?;
        names.iter().position(|known| *known == name).ok_or_else(|| {
            let name = shown(&name);
            self.fault(match near::closest(&name, names.iter().copied()) {
                Some(meant) => format!("is '{name}'; did you mean '{meant}'? Known: {}", names.join(", ")),
                None => format!("is '{name}'; known: {}", names.join(", ")),
            })
        })
    }

    fn one_of<T: Copy>(&self, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, PolicyFault> {
        let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
        let place = self.name(&names)?;
        all.get(place).copied().ok_or_else(|| self.fault("must be known"))
    }

    /// Reads one or more of a few names as a set of their places.
    fn choice(&self, names: &[&str]) -> Result<u8, PolicyFault> {
        self.one_or_more()?.iter().try_fold(0, |set, node| Ok(set | 1 << node.name(names)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_bounded() {
        let rule = |n: usize| format!(r#"{{"id":"r{n}","effect":"deny","match":{{"tool":"a:b{n}"}}}}"#);
        let list = |count: usize| format!("[{}]", (0..count).map(rule).collect::<Vec<_>>().join(","));
        assert_eq!(RuleSet::parse(&list(RULES_MAX)).unwrap().len(), RULES_MAX);
        assert_eq!(RuleSet::parse(&list(RULES_MAX + 1)).unwrap_err().message, "must have at most 500 rules");
        let globs = format!(
            r#"[{{"id":"a","effect":"deny","match":{{"tool":[{}"a:b"]}}}}]"#,
            "\"a:b\",".repeat(GLOBS_MAX)
        );
        assert_eq!(RuleSet::parse(&globs).unwrap_err().message, "must have at most 64 globs");
        let long = format!("[{}]", " ".repeat(DOCUMENT_BYTES_MAX));
        assert_eq!(RuleSet::parse(&long).unwrap_err().message, "must have at most 262144 bytes");
    }
}
