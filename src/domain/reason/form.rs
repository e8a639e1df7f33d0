//! Submission of a form of a web page, in words: every field that is set or sent, and where it goes.

use super::texts::{self, say};
use super::{Language, one_line, quotation, value_line};
use crate::domain::redact;
use crate::domain::web_page::facts::AlsoSentWhy;
use crate::domain::web_page::plan::FormPlan;

/// Most fields that are shown with their values, of each kind.
const FIELDS_MAX: usize = 40;
/// Most further fields that are named.
const NAMES_MAX: usize = 200;
/// Longest name of a further field, in bytes.
const NAME_BYTES_MAX: usize = 60;
/// Longest value of a field that is shown, in bytes.
const FIELD_BYTES_MAX: usize = 200;
/// Longest URL that is shown, in bytes.
const URL_BYTES_MAX: usize = 400;
/// Values before those of the fields: method, target, page, numbers of fields of both kinds, and of those beyond. Names of the last
/// come behind all others.
const HEAD: usize = 6;
/// Values of a field: name, label, value, and the reason why it is sent without an argument.
const OF_FIELD: usize = 4;

/// Returns the values of the action, and whether any field is not shown whole.
pub(super) fn values(plan: &FormPlan) -> (Vec<String>, bool) {
    let set = plan.sets.len().min(FIELDS_MAX);
    let also = plan.also_sends.len().min(FIELDS_MAX);
    let left = plan.sets.len() + plan.also_sends.len() - set - also;
    let mut values = vec![
        plan.method.clone(),
        one_line(&plan.action, URL_BYTES_MAX),
        one_line(&plan.page, URL_BYTES_MAX),
        set.to_string(),
        also.to_string(),
        left.to_string(),
    ];
    let mut was_cut = left > 0;
    let mut shown = |name: &str, value: &str| {
        let line = value_line(value, FIELD_BYTES_MAX);
        was_cut |= line.truncated;
        let shown = redact::preview_member(name, &line.text, FIELD_BYTES_MAX * 2);
        // a value must not end its own quotation
        quotation(&shown).unwrap_or_default()
    };
    let words = |text: &str| quotation(text).unwrap_or_default();
    for field in plan.sets.iter().take(FIELDS_MAX) {
        let value =
            field.value.as_ref().map_or_else(|| redact::MASK.to_owned(), |value| shown(&field.name, value));
        values.extend([words(&field.name), words(&field.label), value, String::new()]);
    }
    for field in plan.also_sends.iter().take(FIELDS_MAX) {
        let value = field.value.as_ref().map_or_else(String::new, |value| shown(&field.name, value));
        let label = field.label.as_deref().unwrap_or_default();
        values.extend([words(&field.name), words(label), value, field.why.as_str().to_owned()]);
    }
    let beyond = plan.sets.iter().skip(FIELDS_MAX).map(|field| &field.name);
    let beyond = beyond.chain(plan.also_sends.iter().skip(FIELDS_MAX).map(|field| &field.name));
    values.extend(beyond.take(NAMES_MAX).map(|name| words(&one_line(name, NAME_BYTES_MAX))));
    (values, was_cut)
}

/// Returns the action in words.
pub(super) fn sentence(values: &[String], language: Language) -> String {
    let value = |place: usize| values.get(place).map_or("", String::as_str);
    let count = |place: usize| value(place).parse::<usize>().unwrap_or_default().min(FIELDS_MAX);
    let (set, also) = (count(3), count(4));
    let mut text = texts::form_head([value(0), value(1), value(2), ""], language);
    let rows = values.get(HEAD..).unwrap_or_default();
    let beyond = rows.get((set + also) * OF_FIELD..).unwrap_or_default();
    let rows = rows.chunks(OF_FIELD);
    let mut rows = rows.map(|row| -> [&str; OF_FIELD] {
        std::array::from_fn(|place| row.get(place).map_or("", String::as_str))
    });
    let fields: Vec<String> = rows
        .by_ref()
        .take(set)
        .map(|[name, label, value, _]| {
            format!("{} = {}", titled(name, label, language), texts::quoted(value, language))
        })
        .collect();
    if !fields.is_empty() {
        let label = say("Fields:", "Felder:").of(language);
        text.push_str(&format!(" {label} {}.", fields.join("; ")));
    }
    let others: Vec<String> = rows
        .take(also)
        .map(|[name, label, value, why]| {
            let mut text = titled(name, label, language);
            if !value.is_empty() {
                text.push_str(&format!(" = {}", texts::quoted(value, language)));
            }
            format!("{text} ({})", reason(why, language))
        })
        .collect();
    if !others.is_empty() {
        let label = say(
            "Also sent, without an argument of the call:",
            "Außerdem wird ohne Argument des Aufrufs gesendet:",
        );
        text.push_str(&format!(" {} {}.", label.of(language), others.join("; ")));
    }
    if !matches!(value(5), "" | "0") {
        text.push_str(&further(value(5), beyond, language));
    }
    text
}

/// Returns the sentence about fields whose values are not shown. The release before named none of them.
fn further(count: &str, names: &[String], language: Language) -> String {
    let named: Vec<String> = names.iter().map(|name| titled(name, "", language)).collect();
    let rest = count.parse::<usize>().unwrap_or_default().saturating_sub(named.len());
    let mut list = named.join(", ");
    if rest > 0 && !list.is_empty() {
        list.push_str(&match language {
            Language::English => format!(" and {rest} others"),
            Language::German => format!(" und {rest} andere"),
        });
    }
    let mut text = match language {
        Language::English => format!(" And {count} more fields"),
        Language::German => format!(" Und {count} weitere Felder"),
    };
    if !list.is_empty() {
        let without = say(", without their values:", ", ohne ihre Werte:").of(language);
        text.push_str(&format!("{without} {list}"));
    }
    text.push('.');
    text
}

/// Returns the name of a field behind its label. Words of a site stand in quotation marks, so that none of them can pass for
/// another field or value.
fn titled(name: &str, label: &str, language: Language) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
    let named = match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => texts::quoted(name, language),
    };
    match label.is_empty() || label == name {
        true => named,
        false => format!("{} [{named}]", texts::quoted(label, language)),
    }
}

fn reason(why: &str, language: Language) -> &'static str {
    match AlsoSentWhy::parse(why) {
        Some(AlsoSentWhy::Hidden) => say("hidden", "verborgen"),
        Some(AlsoSentWhy::Preset) => {
            say("ticked or selected on the page", "auf der Seite angekreuzt oder ausgewählt")
        }
        Some(AlsoSentWhy::Secret) => {
            say("a secret of the server's settings", "ein Geheimnis aus den Einstellungen des Servers")
        }
        Some(AlsoSentWhy::Button) => say("the button that is pressed", "die gedrückte Schaltfläche"),
        Some(AlsoSentWhy::Address) => say("in the address", "in der Adresse"),
        Some(AlsoSentWhy::Empty) => say("sent empty", "leer gesendet"),
        Some(AlsoSentWhy::Cookies) => say("kept from earlier calls", "aus früheren Aufrufen behalten"),
        Some(AlsoSentWhy::Direction) => say("writing direction", "Schreibrichtung"),
        Some(AlsoSentWhy::Default) | None => say("as the page has it", "wie auf der Seite"),
    }
    .of(language)
}
