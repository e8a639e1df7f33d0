//! Field of a form of filters, filled in as the address of its page says (`filter_field.html`).

/// Field of the form.
pub(super) struct FilterField {
    /// Name of the parameter.
    pub(super) name: &'static str,
    /// Label of the field.
    pub(super) label: &'static str,
    /// Kind of the input.
    pub(super) input: &'static str,
    /// Text in an empty field that says what it takes; empty for none.
    pub(super) hint: &'static str,
    /// Value, as the address has it; empty if it has none.
    pub(super) value: String,
    /// Values to choose from; none for a free text.
    pub(super) options: Vec<FilterOption>,
}

/// Value of a field to choose.
pub(super) struct FilterOption {
    /// Value.
    pub(super) word: String,
    /// True if it is the one chosen.
    pub(super) is_chosen: bool,
}

/// Values of the parameters, by name.
pub(super) type Given = [(&'static str, String)];

/// Returns the value of a parameter; empty if the address has none.
pub(super) fn value(given: &Given, name: &str) -> String {
    given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

/// Returns a field for a free text.
pub(super) fn text(given: &Given, name: &'static str, label: &'static str) -> FilterField {
    FilterField { name, label, input: "text", hint: "", value: value(given, name), options: Vec::new() }
}

/// Returns a field for a name, of which a part finds nothing.
pub(super) fn name(given: &Given, name: &'static str, label: &'static str) -> FilterField {
    FilterField { hint: "whole name", ..text(given, name, label) }
}

/// Returns a field for the name of a tool, alone or with that of its server.
pub(super) fn tool(given: &Given) -> FilterField {
    FilterField { hint: "whole name, or server:tool", ..text(given, "tool", "Tool") }
}

/// Returns a field with words to choose from.
pub(super) fn choice(given: &Given, name: &'static str, label: &'static str, words: &[&str]) -> FilterField {
    let value = value(given, name);
    // a value of the address that is none of the form's stays chosen, so that the form changes nothing by itself
    let own = Some(value.as_str()).filter(|value| !value.is_empty() && !words.contains(value));
    let option = |word: &str| FilterOption { word: word.to_owned(), is_chosen: word == value };
    let options = words.iter().copied().chain(own).map(option).collect();
    FilterField { options, ..text(given, name, label) }
}
