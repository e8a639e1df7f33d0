//! Texts of reasons in all languages.

use super::Language;
use super::key::ActionKey;
use crate::domain::risk::{Risk, RiskLevel, RiskSignal};

/// Text in all languages.
#[derive(Clone, Copy)]
pub(super) struct Wording {
    english: &'static str,
    german: &'static str,
}

impl Wording {
    pub(super) fn of(self, language: Language) -> &'static str {
        match language {
            Language::English => self.english,
            Language::German => self.german,
        }
    }
}

pub(super) const fn say(english: &'static str, german: &'static str) -> Wording {
    Wording { english, german }
}

pub(super) const IRREVERSIBLE: Wording =
    say("This cannot be undone.", "Das lässt sich nicht rückgängig machen.");
pub(super) const CUT: Wording = say(
    "The arguments are longer than what is shown here.",
    "Die Argumente sind länger, als hier gezeigt wird.",
);
/// Remark on a reason whose place is hidden, or behind something that cannot be read.
pub(super) const NOT_FOUND: Wording = say(
    "its place was not found in what is shown",
    "die Stelle wurde in dem, was gezeigt wird, nicht gefunden",
);

/// Warns of masks, which can hide more than a secret: what follows it without a blank, for one.
pub(super) fn masked(bytes: usize, language: Language) -> String {
    match language {
        Language::English => {
            format!("[redacted] hides up to {bytes} bytes of the arguments, which the call has.")
        }
        Language::German => {
            format!("[redacted] verbirgt bis zu {bytes} Bytes der Argumente, die der Aufruf enthält.")
        }
    }
}

/// Quotation marks, none of which a quotation has within.
pub(super) const QUOTES: [char; 6] = ['"', '“', '”', '„', '«', '»'];
/// Verbs that take an object to another place or name.
pub(super) const MOVES: [&str; 2] = ["move", "rename"];
/// Longest end of such a way, in characters.
const END_CHARS_MAX: usize = 80;
/// Sign between the place that something leaves and the one that it gets to.
pub(super) const ARROW: &str = " → ";
pub(super) const AGENT: Wording = say("The agent says:", "Der Agent sagt:");
pub(super) const AUTHOR: Wording = say("The tool's author says:", "Der Autor des Werkzeugs sagt:");

/// Verb of a tool's name with its wording, and the word before the name of its object.
struct Verb {
    name: &'static str,
    wording: Wording,
    to: Option<Wording>,
}

const fn plain(name: &'static str, english: &'static str, german: &'static str) -> Verb {
    Verb { name, wording: say(english, german), to: None }
}

const VERBS: [Verb; 24] = [
    plain("delete", "Delete", "löschen"),
    plain("remove", "Remove", "entfernen"),
    plain("drop", "Delete", "löschen"),
    plain("purge", "Purge", "endgültig löschen"),
    plain("destroy", "Destroy", "zerstören"),
    plain("wipe", "Wipe", "unwiderruflich löschen"),
    plain("erase", "Erase", "löschen"),
    plain("truncate", "Empty", "leeren"),
    plain("create", "Create", "anlegen"),
    plain("add", "Add", "hinzufügen"),
    plain("update", "Change", "ändern"),
    plain("edit", "Change", "ändern"),
    plain("move", "Move", "verschieben"),
    plain("rename", "Rename", "umbenennen"),
    plain("merge", "Merge", "zusammenführen"),
    plain("close", "Close", "schließen"),
    plain("archive", "Archive", "archivieren"),
    plain("publish", "Publish", "veröffentlichen"),
    plain("deploy", "Deploy", "ausrollen"),
    plain("revoke", "Revoke", "widerrufen"),
    plain("grant", "Grant", "gewähren"),
    plain("pay", "Pay", "bezahlen"),
    Verb { name: "transfer", wording: say("Transfer", "übertragen"), to: Some(say("to", "an")) },
    Verb { name: "send", wording: say("Send", "senden"), to: Some(say("to", "an")) },
];

/// Objects in tools' names.
const OBJECTS: [(&str, Wording); 24] = [
    ("repo", say("the repository", "das Repository")),
    ("repository", say("the repository", "das Repository")),
    ("project", say("the project", "das Projekt")),
    ("branch", say("the branch", "den Branch")),
    ("file", say("the file", "die Datei")),
    ("directory", say("the folder", "den Ordner")),
    ("folder", say("the folder", "den Ordner")),
    ("issue", say("the issue", "das Issue")),
    ("pull request", say("the pull request", "den Pull Request")),
    ("release", say("the release", "das Release")),
    ("comment", say("the comment", "den Kommentar")),
    ("user", say("the user", "den Benutzer")),
    ("customer", say("the customer", "den Kunden")),
    ("table", say("the table", "die Tabelle")),
    ("database", say("the database", "die Datenbank")),
    ("record", say("the record", "den Datensatz")),
    ("message", say("the message", "die Nachricht")),
    ("email", say("the e-mail", "die E-Mail")),
    ("event", say("the event", "den Termin")),
    ("page", say("the page", "die Seite")),
    ("bucket", say("the bucket", "den Bucket")),
    ("key", say("the key", "den Schlüssel")),
    ("payment", say("the payment", "die Zahlung")),
    ("invoice", say("the invoice", "die Rechnung")),
];

/// Returns whether there is a wording of a verb.
pub(super) fn has_verb(name: &str) -> bool {
    VERBS.iter().any(|verb| verb.name == name)
}

/// Words an action with its values.
pub(super) fn action(key: ActionKey, values: [&str; 4], language: Language) -> String {
    let shown: [String; 4] = match key {
        ActionKey::Execute | ActionKey::Sql => values.map(|value| closed(value, language)),
        ActionKey::Act => {
            let [verb, object, called, place] = values;
            let called = match MOVES.contains(&verb) {
                true => route(called, language),
                false => named(called, language),
            };
            [verb.to_owned(), object.to_owned(), called, named(place, language)]
        }
        // has its own quotation marks
        ActionKey::Call | ActionKey::SubmitForm => values.map(str::to_owned),
        ActionKey::ReadFile | ActionKey::ReadConfiguration | ActionKey::WriteFile | ActionKey::Request => {
            values.map(|value| named(value, language))
        }
    };
    let values = shown.each_ref().map(String::as_str);
    let [first, second, third, _] = values;
    match (key, language) {
        (ActionKey::ReadFile, Language::English) => format!("Read file at {first}"),
        (ActionKey::ReadFile, Language::German) => format!("Datei {first} lesen"),
        (ActionKey::ReadConfiguration, Language::English) => format!("Read configuration file at {first}"),
        (ActionKey::ReadConfiguration, Language::German) => format!("Konfigurationsdatei {first} lesen"),
        (ActionKey::WriteFile, Language::English) => format!("Write to file at {first}"),
        (ActionKey::WriteFile, Language::German) => format!("In die Datei {first} schreiben"),
        (ActionKey::Execute, Language::English) => format!("Execute command: {first}"),
        (ActionKey::Execute, Language::German) => format!("Befehl ausführen: {first}"),
        (ActionKey::Request, Language::English) => format!("Send a {first} request to {second}"),
        (ActionKey::Request, Language::German) => format!("Eine {first}-Anfrage an {second} senden"),
        (ActionKey::Sql, Language::English) => format!("Run SQL on {second}: {first}"),
        (ActionKey::Sql, Language::German) => format!("SQL auf {second} ausführen: {first}"),
        (ActionKey::Act, _) => act(values, language),
        (ActionKey::SubmitForm, _) => form_head(values, language),
        (ActionKey::Call, Language::English) => {
            let arguments = if third == "1" { "argument" } else { "arguments" };
            format!("Run '{first}' on server '{second}' with {third} {arguments}")
        }
        (ActionKey::Call, Language::German) => {
            let arguments = if third == "1" { "Argument" } else { "Argumenten" };
            format!("'{first}' auf dem Server '{second}' mit {third} {arguments} ausführen")
        }
    }
}

fn act([name, object, called, place]: [&str; 4], language: Language) -> String {
    let verb = VERBS.iter().find(|verb| verb.name == name);
    let doing = verb.map_or(name, |verb| verb.wording.of(language));
    let to = verb.and_then(|verb| verb.to).filter(|_| !called.is_empty() && !object.is_empty());
    let of = if place.is_empty() { "" } else { say("of", "von").of(language) };
    let known = OBJECTS.iter().find(|(known, _)| *known == object);
    let object = known.map_or(object, |(_, wording)| wording.of(language));
    let mut parts = vec![object, to.map_or("", |to| to.of(language)), called, of, place];
    match language {
        Language::English => parts.insert(0, doing),
        Language::German => parts.push(doing),
    }
    parts.retain(|part| !part.is_empty());
    capital(&parts.join(" "))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns where the form is and where it goes, in words.
pub(super) fn form_head([method, action, page, _]: [&str; 4], language: Language) -> String {
    match language {
        Language::English => format!("Send a form of the page {page} by {method} to {action}."),
        Language::German => format!("Ein Formular der Seite {page} per {method} an {action} senden."),
    }
}

/// Puts quotation marks around words that have none of their own.
pub(super) fn quoted(words: &str, language: Language) -> String {
    match language {
        Language::English => format!("\"{words}\""),
        Language::German => format!("„{words}“"),
    }
}

/// Returns a value of the caller as a part of a sentence: one with white space stands in quotation marks, so that no value passes for words of
/// the gateway.
fn named(value: &str, language: Language) -> String {
    match value.contains(char::is_whitespace) {
        true => quoted(&value.replace(QUOTES, "'"), language),
        false => value.to_owned(),
    }
}

/// Returns where something is moved from and to, each as [`named`] has it; neither is so long that it pushes the other out of sight.
fn route(value: &str, language: Language) -> String {
    let end = |end: &str| {
        let cut = end.char_indices().nth(END_CHARS_MAX).and_then(|(at, _)| end.get(..at));
        named(&cut.map_or_else(|| end.to_owned(), |cut| format!("{cut}…")), language)
    };
    let ends: Vec<String> = value.split(ARROW).map(end).collect();
    ends.join(ARROW)
}

/// Returns a value of the caller behind a colon, at the end of the sentence: one that could end that sentence and begin another stands in
/// quotation marks. Its own ones keep their meaning, as commands and statements need them.
fn closed(value: &str, language: Language) -> String {
    let ends = |pair: &[char]| matches!(pair, [end, after] if ".!?:".contains(*end) && after.is_whitespace());
    let chars: Vec<char> = value.chars().collect();
    match chars.windows(2).any(ends) {
        true => quoted(&value.replace('\\', "\\\\").replace('"', "\\\"").replace('“', "\\“"), language),
        false => value.to_owned(),
    }
}

/// Words the risk with its reasons.
pub(super) fn risk(risk: Risk, server: &str, tool: &str, language: Language) -> String {
    let level = match risk.level {
        RiskLevel::Low => say("low", "gering"),
        RiskLevel::Moderate => say("moderate", "mäßig"),
        RiskLevel::High => say("high", "hoch"),
        RiskLevel::Critical => say("critical", "kritisch"),
    };
    let level = level.of(language);
    let mut text = match language {
        Language::English => format!("Risk: {level}. Tool '{tool}' of server '{server}'."),
        Language::German => format!("Risiko: {level}. Werkzeug '{tool}' des Servers '{server}'."),
    };
    let reasons = risk_reasons(risk, language);
    if !reasons.is_empty() {
        text.push_str(&format!(" {}.", capital(&reasons.join("; "))));
    }
    text
}

/// Returns the reasons of a risk, each without a full stop.
pub fn risk_reasons(risk: Risk, language: Language) -> Vec<&'static str> {
    risk.signals.iter().map(|found| signal(found).of(language)).collect()
}

/// Returns the reason that a signal is as a line of its own, without a full stop.
pub(super) fn reason(found: RiskSignal, language: Language) -> String {
    capital(signal(found).of(language))
}

/// Returns the reason that a signal is, without a full stop.
fn signal(signal: RiskSignal) -> Wording {
    match signal {
        RiskSignal::Writes => say("the tool is not read-only", "das Werkzeug liest nicht nur"),
        RiskSignal::WritesFiles => say("the tool writes files", "das Werkzeug schreibt Dateien"),
        RiskSignal::Destroys => say("the tool may destroy data", "das Werkzeug kann Daten zerstören"),
        RiskSignal::Verb => say(
            "the tool's name says that it deletes, sends, pays or runs something",
            "der Name des Werkzeugs sagt, dass es etwas löscht, sendet, bezahlt oder ausführt",
        ),
        RiskSignal::Irreversible => {
            say("the effect cannot be undone", "die Wirkung lässt sich nicht rückgängig machen")
        }
        RiskSignal::Terminal => say("the tool runs commands", "das Werkzeug führt Befehle aus"),
        RiskSignal::Http => {
            say("the tool sends requests to the network", "das Werkzeug sendet Anfragen ins Netz")
        }
        RiskSignal::Site => {
            say("a web page describes the tool itself", "eine Webseite beschreibt das Werkzeug selbst")
        }
        RiskSignal::SensitiveCategory => say(
            "the form is about money, credentials, personal or legal matters",
            "das Formular betrifft Geld, Zugangsdaten, Persönliches oder Rechtliches",
        ),
        RiskSignal::Changed => say(
            "the tool's definition changed in the last 24 hours",
            "die Definition des Werkzeugs hat sich in den letzten 24 Stunden geändert",
        ),
        RiskSignal::Mismatch => say(
            "the call contradicts what the server says about the tool",
            "der Aufruf widerspricht dem, was der Server über das Werkzeug sagt",
        ),
        RiskSignal::Declared => say(
            "the agent declares more than the tool is known to do",
            "der Agent gibt mehr an, als das Werkzeug bekanntlich tut",
        ),
        RiskSignal::LeavesTheHouse => say(
            "private data may leave the organisation",
            "vertrauliche Daten können die Organisation verlassen",
        ),
        RiskSignal::SqlStructure => say(
            "a statement drops, empties or alters tables, or grants rights",
            "eine Anweisung löscht, leert oder ändert Tabellen oder vergibt Rechte",
        ),
        RiskSignal::SqlAllRows => {
            say("a statement changes all rows of a table", "eine Anweisung ändert alle Zeilen einer Tabelle")
        }
        RiskSignal::HostileCommand => say(
            "a command deletes recursively, takes rights or runs what it downloads",
            "ein Befehl löscht rekursiv, nimmt sich Rechte oder führt Heruntergeladenes aus",
        ),
        RiskSignal::ShellCharacters => say(
            "a command has characters that a shell interprets",
            "ein Befehl enthält Zeichen, die eine Shell auswertet",
        ),
        RiskSignal::Force => say(
            "an argument asks for force, recursion or everything",
            "ein Argument verlangt Zwang, Rekursion oder alles",
        ),
        RiskSignal::Wildcard => say("an argument has a wildcard", "ein Argument enthält einen Platzhalter"),
        RiskSignal::LongList => {
            say("a list in the arguments is long", "eine Liste in den Argumenten ist lang")
        }
        RiskSignal::Money => say("an argument is about money", "ein Argument betrifft Geld"),
        RiskSignal::SystemPath => say(
            "an argument names files of the system or of credentials",
            "ein Argument nennt Dateien des Systems oder von Zugangsdaten",
        ),
        RiskSignal::PrivateUrl => say(
            "an argument is an address in a private network",
            "ein Argument ist eine Adresse in einem privaten Netz",
        ),
    }
}
