//! Sensitive categories of forms, from what the form is and says, in five languages.
//!
//! A category makes a call ask and a risk rise. An author's words can add a category, and never take one away.

mod terms;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use super::form::ControlKind;
use super::wording::{is_unseen, unparted_words, words};
use crate::domain::text_enum::text_enum;
use terms::{Spot, TERMS};

/// Longest text that is searched, in bytes.
const TEXT_BYTES_MAX: usize = 1000;
/// Most words of a term.
const TERM_WORDS_MAX: usize = 6;

text_enum! {
    /// Category of interactions that always ask a person (R5).
    #[derive(PartialOrd, Ord)]
    pub enum SensitiveCategory {
        /// Cards, bank accounts and other means of payment.
        Payment = "payment",
        /// Purchases, transfers, subscriptions.
        Transaction = "transaction",
        /// Passwords, codes and keys.
        Credentials = "credentials",
        /// Names, addresses, numbers of documents, health.
        Personal = "personal",
        /// Terms, contracts, consent.
        Legal = "legal",
        /// Deletion, orders, messages.
        Irreversible = "irreversible",
    }
}

/// Field of a form, as far as its category needs it.
#[derive(Clone, Copy, Debug)]
pub struct SensitiveField<'a> {
    /// Kind of the control.
    pub kind: ControlKind,
    /// Tokens of `autocomplete`, in lower case.
    pub autocomplete: &'a [String],
}

/// Collector of the categories of one form.
#[derive(Debug, Default)]
pub struct Sensitivities {
    found: BTreeSet<SensitiveCategory>,
}

impl Sensitivities {
    /// Returns the categories in order.
    pub fn into_categories(self) -> Vec<SensitiveCategory> {
        self.found.into_iter().collect()
    }

    /// Adds the categories of a field: of its type, of its autofill tokens and of the texts at it.
    pub fn add_field<'a>(&mut self, field: SensitiveField<'_>, texts: impl Iterator<Item = &'a str>) {
        use SensitiveCategory::{Credentials, Personal};
        match field.kind {
            ControlKind::Password => self.found.insert(Credentials),
            ControlKind::Email | ControlKind::Tel => self.found.insert(Personal),
            _ => false,
        };
        self.found.extend(field.autocomplete.iter().filter_map(|token| of_token(token)));
        let is_box = field.kind.is_checkable();
        for text in texts {
            self.add(text, |spot| spot == Spot::Field || (is_box && spot == Spot::Box));
        }
    }

    /// Adds categories that were found elsewhere.
    pub fn add_all(&mut self, categories: &[SensitiveCategory]) {
        self.found.extend(categories);
    }

    /// Adds the categories of a text that says what the form does: a heading, a button, a name or description of the tool.
    pub fn add_deed(&mut self, text: &str) {
        self.add(text, |spot| spot == Spot::Deed);
    }

    /// Adds the categories of a button of a form that posts.
    pub fn add_posting_button(&mut self, text: &str) {
        self.add(text, |spot| matches!(spot, Spot::Deed | Spot::Post));
    }

    /// Adds the categories of a paragraph or link within the form.
    pub fn add_text(&mut self, text: &str) {
        self.add(text, |spot| spot == Spot::Text);
    }

    /// Adds the categories of WAM's functions (`wam-intent-function`).
    pub fn add_functions(&mut self, functions: &str) {
        for function in functions.split_ascii_whitespace() {
            match function {
                "purchase" => self.found.insert(SensitiveCategory::Transaction),
                "login" => self.found.insert(SensitiveCategory::Credentials),
                _ => false,
            };
            self.add_deed(function);
        }
    }

    fn add(&mut self, text: &str, counts: impl Fn(Spot) -> bool) {
        let text = looked_at(text);
        // a capital may begin a word, or be there to hide one
        for words in [words(&text), unparted_words(&text)] {
            for at in 0..words.len() {
                for (term, category) in KNOWN.at(&words, at) {
                    if counts(term.spot) {
                        self.found.insert(category);
                    }
                }
            }
        }
    }
}

/// Returns the beginning of a text as it is seen: characters that nobody sees, and runs of white space, do not fill the bound.
fn looked_at(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !is_unseen(*c)) {
        if out.len() >= TEXT_BYTES_MAX {
            break;
        }
        if !c.is_whitespace() || !out.ends_with(' ') {
            out.push(if c.is_whitespace() { ' ' } else { c });
        }
    }
    out
}

/// Returns the category of an autofill token of HTML.
fn of_token(token: &str) -> Option<SensitiveCategory> {
    match token {
        "current-password" | "new-password" | "one-time-code" => Some(SensitiveCategory::Credentials),
        "transaction-amount" => Some(SensitiveCategory::Transaction),
        "name" | "username" | "nickname" | "email" | "bday" | "sex" | "photo" | "impp" | "street-address"
        | "postal-code" => Some(SensitiveCategory::Personal),
        _ if token.starts_with("cc-") || token == "transaction-currency" => Some(SensitiveCategory::Payment),
        _ => ["given-name", "family-name", "additional-name", "honorific-", "tel", "bday-", "address-l"]
            .iter()
            .any(|beginning| token.starts_with(beginning))
            .then_some(SensitiveCategory::Personal),
    }
}

#[derive(Debug)]
struct Term {
    words: Vec<&'static str>,
    spot: Spot,
    is_whole_text: bool,
    is_prefix: bool,
}

/// Terms by their first word; those of one word with any end stand apart.
#[derive(Debug, Default)]
struct Terms {
    by_first: HashMap<&'static str, Vec<(Term, SensitiveCategory)>>,
    prefixes: Vec<(Term, SensitiveCategory)>,
}

static KNOWN: LazyLock<Terms> = LazyLock::new(|| {
    let mut known = Terms::default();
    for (category, spot, list) in TERMS {
        for text in list.split(',').map(str::trim) {
            let bare = text.trim_start_matches('=').trim_end_matches('*');
            let term = Term {
                words: bare.split(' ').take(TERM_WORDS_MAX).collect(),
                spot,
                is_whole_text: text.starts_with('='),
                is_prefix: text.ends_with('*'),
            };
            match term.words.first() {
                Some(_) if term.is_prefix => known.prefixes.push((term, category)),
                Some(first) => known.by_first.entry(first).or_default().push((term, category)),
                None => {}
            }
        }
    }
    known
});

impl Terms {
    /// Returns the terms that begin at a word of a text.
    fn at<'a>(
        &'a self,
        words: &'a [String],
        at: usize,
    ) -> impl Iterator<Item = (&'a Term, SensitiveCategory)> {
        let first = words.get(at).map(String::as_str).unwrap_or_default();
        let exact = self.by_first.get(first).into_iter().flatten();
        let begun = self
            .prefixes
            .iter()
            .filter(move |(term, _)| term.words.first().is_some_and(|word| first.starts_with(word)));
        let rest = words.get(at..).unwrap_or_default();
        exact
            .filter(move |(term, _)| {
                let is_there = rest.len() >= term.words.len()
                    && term.words.iter().zip(rest).all(|(word, own)| word == own);
                is_there && (!term.is_whole_text || words.len() == term.words.len())
            })
            .chain(begun)
            .map(|(term, category)| (term, *category))
    }
}
