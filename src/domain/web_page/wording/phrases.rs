//! Phrases and marks that make a site's text unfit for a quotation.

use super::{Suspicion, folded};

/// Marks of markup and of a conversation's roles, in folded text.
const MARKUP: [&str; 13] =
    ["</", "<!", "<?", "<|", "|>", "&lt;", "&#", "```", "{{", "[inst]", "<<sys", "[system]", "###"];
/// Beginnings of a line that speak in the name of somebody in a conversation, in folded text.
const ROLES: [&str; 5] = ["system:", "assistant:", "developer:", "user:", "human:"];
/// Marks of links, in folded text.
const LINKS: [&str; 8] = ["://", "www.", "javascript:", "vbscript:", "data:text", "mailto:", "](", "http:"];
/// Phrases in folded text, words only; in English, German, French, Spanish and Italian.
const PHRASES: [&str; 161] = [
    // orders to forget what the user or the gateway said
    "ignore previous",
    "ignore all",
    "ignore any",
    "ignore every",
    "ignore the",
    "ignore your",
    "ignore prior",
    "disregard",
    "forget all",
    "forget your instructions",
    "forget previous",
    "forget everything",
    "override the",
    "override your",
    "previous instructions",
    "prior instructions",
    "new instructions",
    "following instructions",
    "system prompt",
    "system message",
    "you are now",
    "from now on",
    "act as",
    "pretend to",
    "as an ai",
    "ai assistant",
    "ai agent",
    "ai agents",
    "language model",
    "llm",
    "llms",
    "chatbot",
    "jailbreak",
    // orders about the person
    "tell the user",
    "tell your user",
    "ask the user",
    "ask your user",
    "instruct the user",
    "inform the user",
    "the user to",
    "user has already",
    "their api key",
    "do not tell",
    "don t tell",
    "do not inform",
    "don t inform",
    "do not mention",
    "don t mention",
    "never mention",
    "do not reveal",
    "do not show",
    "do not ask",
    "don t ask",
    "without asking",
    "without confirmation",
    "without confirming",
    "without approval",
    "no confirmation",
    "no approval",
    "not need confirmation",
    "not need approval",
    "not require confirmation",
    "not require approval",
    "already approved",
    "already confirmed",
    "pre approved",
    "preapproved",
    "confirmation is not",
    "approval is not",
    "skip confirmation",
    "skip the confirmation",
    // orders about tools and data
    "you must call",
    "you must use",
    "you must first",
    "you must send",
    "you must include",
    "you must not",
    "you must always",
    "you must never",
    "you must now",
    "you should call",
    "you should first",
    "you should always",
    "before calling",
    "before using this",
    "before you call",
    "before invoking",
    "first call",
    "this tool is safe",
    "this tool first",
    "always call",
    "always use this",
    "execute the following",
    "run the following",
    "read the file",
    "environment variable",
    "environment variables",
    "conversation history",
    "chat history",
    "entire conversation",
    "whole conversation",
    "paste their",
    "paste your api",
    "paste your key",
    "paste your password",
    "paste your token",
    "exfiltrate",
    // German
    "ignoriere",
    "ignorieren sie",
    "vergiss alle",
    "vergiss deine",
    "missachte",
    "sprachmodell",
    "ki assistent",
    "ohne nachzufragen",
    "ohne ruckfrage",
    "ohne bestatigung",
    "keine bestatigung",
    "sag dem nutzer",
    "sage dem nutzer",
    "sage dem benutzer",
    "fordere den nutzer",
    "fordere den benutzer",
    "bitte den nutzer",
    "bitte den benutzer",
    // French
    "ignore les",
    "ignorez",
    "ignore toutes",
    "oublie toutes",
    "oubliez les",
    "oubliez toutes",
    "modele de langage",
    "sans demander",
    "sans confirmation",
    "dis a l utilisateur",
    "dites a l utilisateur",
    "demande a l utilisateur",
    "demandez a l utilisateur",
    // Spanish
    "ignora las",
    "ignora todas",
    "ignore las",
    "olvida las",
    "olvida todas",
    "modelo de lenguaje",
    "sin preguntar",
    "sin confirmacion",
    "dile al usuario",
    "pide al usuario",
    "pidele al usuario",
    "pida al usuario",
    // Italian
    "ignora le",
    "ignora tutte",
    "dimentica le",
    "dimentica tutte",
    "modello linguistico",
    "senza chiedere",
    "senza conferma",
    "di all utente",
    "dica all utente",
    "chiedi all utente",
    "chieda all utente",
];

/// Returns the reason why a line must not be quoted; `None` if there is none.
pub(super) fn suspicion(line: &str) -> Option<Suspicion> {
    let folded = folded(line);
    let speaks = ROLES.iter().any(|role| folded.starts_with(role));
    if speaks || MARKUP.iter().any(|mark| folded.contains(mark)) || opens_tag(&folded) {
        return Some(Suspicion::Markup);
    }
    if LINKS.iter().any(|mark| folded.contains(mark)) || folded.split(' ').any(is_address) {
        return Some(Suspicion::Link);
    }
    let mut spaced = String::with_capacity(folded.len() + 2);
    spaced.push(' ');
    for c in folded.chars() {
        let c = if c.is_alphanumeric() { c } else { ' ' };
        if c != ' ' || !spaced.ends_with(' ') {
            spaced.push(c);
        }
    }
    spaced.push(' ');
    // letters that stand apart are one word to a model
    let closed = closed_up(&spaced);
    let has = |phrase: &str| {
        let is_in = |text: &str| text.match_indices(phrase).any(|(at, _)| is_whole(text, at, phrase.len()));
        is_in(&spaced) || closed.as_deref().is_some_and(is_in)
    };
    PHRASES.iter().any(|phrase| has(phrase)).then_some(Suspicion::Instruction)
}

/// True if spaces stand on both sides of a part.
fn is_whole(text: &str, at: usize, len: usize) -> bool {
    text.get(..at).is_some_and(|before| before.ends_with(' '))
        && text.get(at + len..).is_some_and(|after| after.starts_with(' ') || after.is_empty())
}

/// Returns the text with runs of three or more single letters joined to words; `None` if there are no such runs. A run of
/// letters hides where its words end, so the text is searched with all words of a run together.
fn closed_up(spaced: &str) -> Option<String> {
    let mut out = String::from(" ");
    let mut run: Vec<&str> = Vec::new();
    let mut has_run = false;
    let mut flush = |run: &mut Vec<&str>, out: &mut String| {
        let joint = if run.len() > 2 { "" } else { " " };
        has_run |= run.len() > 2;
        if !run.is_empty() {
            out.push_str(&run.join(joint));
            out.push(' ');
            run.clear();
        }
    };
    for word in spaced.split(' ').filter(|word| !word.is_empty()) {
        if word.chars().count() == 1 {
            run.push(word);
        } else {
            flush(&mut run, &mut out);
            out.push_str(word);
            out.push(' ');
        }
    }
    flush(&mut run, &mut out);
    has_run.then_some(out)
}

/// True if an angle bracket opens a tag.
fn opens_tag(text: &str) -> bool {
    text.match_indices('<').any(|(at, _)| {
        text.get(at + 1..).and_then(|rest| rest.chars().next()).is_some_and(|c| c.is_ascii_alphabetic())
    })
}

/// True for an e-mail address, or a name of a host with a path.
fn is_address(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let has_dot = |host: &str| {
        host.rsplit_once('.').is_some_and(|(name, top)| {
            name.ends_with(|c: char| c.is_alphanumeric())
                && top.len() > 1
                && top
                    .trim_end_matches(|c: char| !c.is_alphanumeric())
                    .chars()
                    .all(|c| c.is_ascii_alphabetic())
        })
    };
    match word.split_once('@') {
        Some((before, host)) => before.ends_with(|c: char| c.is_alphanumeric()) && has_dot(host),
        None => word.split_once('/').is_some_and(|(host, path)| !path.is_empty() && has_dot(host)),
    }
}
