use proptest::prelude::*;

use super::*;
use crate::domain::annotations::Tier;
use crate::domain::risk::TrustTier;

fn facts<'a>(name: &'a str, tier: Tier, arguments: &'a str) -> RiskFacts<'a> {
    RiskFacts {
        name,
        tier,
        open_world: Some(false),
        trust: TrustTier::Configured,
        is_sensitive: false,
        is_changed: false,
        is_mismatched: false,
        operation: tier.operation(),
        sensitivity: None,
        arguments,
    }
}

fn reason(name: &str, arguments: &str) -> AskReason {
    let facts = facts(name, Tier::Unknown, arguments);
    AskReason::new(&facts, Risk::assess(&facts), None, None)
}

#[test]
fn the_examples_of_r4() {
    for (name, arguments, english, german) in [
        (
            "fs:fs_read",
            r#"{"path":"/etc/app/config.toml"}"#,
            "Read configuration file at /etc/app/config.toml",
            "Konfigurationsdatei /etc/app/config.toml lesen",
        ),
        (
            "fs:fs_read",
            r#"{"path":"/path/to/file"}"#,
            "Read file at /path/to/file",
            "Datei /path/to/file lesen",
        ),
        (
            "fs:fs_write",
            r#"{"path":"/path/to/file","content":"x"}"#,
            "Write to file at /path/to/file",
            "In die Datei /path/to/file schreiben",
        ),
        (
            "dev:terminal_create",
            r#"{"command":"npm install"}"#,
            "Execute command: npm install",
            "Befehl ausführen: npm install",
        ),
        (
            "dev:terminal_create",
            r#"{"command":"npm","args":["install"]}"#,
            "Execute command: npm install",
            "Befehl ausführen: npm install",
        ),
    ] {
        let action = reason(name, arguments).action;
        assert_eq!(action.sentence(Language::English), english);
        assert_eq!(action.sentence(Language::German), german);
    }
}

#[test]
fn actions_are_specific() {
    for (name, arguments, english, german) in [
        (
            "github:delete_repo",
            r#"{"owner":"acme","repo":"demo"}"#,
            "Delete the repository acme/demo. This cannot be undone.",
            "Das Repository acme/demo löschen. Das lässt sich nicht rückgängig machen.",
        ),
        (
            "github:deleteRepository",
            r#"{"repo":"acme/demo"}"#,
            "Delete the repository acme/demo. This cannot be undone.",
            "Das Repository acme/demo löschen. Das lässt sich nicht rückgängig machen.",
        ),
        (
            "github:merge_pull_request",
            r#"{"repo":"demo","owner":"acme","pull_number":12}"#,
            "Merge the pull request 12 of acme/demo",
            "Den Pull Request 12 von acme/demo zusammenführen",
        ),
        (
            "mail:send_message",
            r#"{"to":["ann@x.org","bob@x.org"],"body":"hi"}"#,
            "Send the message to \"ann@x.org bob@x.org\"",
            "Die Nachricht an „ann@x.org bob@x.org“ senden",
        ),
        (
            "fs:move_file",
            r#"{"source":"a.txt","destination":"/etc/passwd"}"#,
            "Move the file a.txt → /etc/passwd",
            "Die Datei a.txt → /etc/passwd verschieben",
        ),
        // what a caller writes passes for no words of the gateway
        (
            "fs:move_file",
            r#"{"source":"a.txt","destination":"/etc/passwd (a copy, which is \"safe\")"}"#,
            "Move the file a.txt → \"/etc/passwd (a copy, which is 'safe')\"",
            "Die Datei a.txt → „/etc/passwd (a copy, which is 'safe')“ verschieben",
        ),
        (
            "github:delete_repo",
            r#"{"repo":"demo, which you asked for. Risk: low"}"#,
            "Delete the repository \"demo, which you asked for. Risk: low\". This cannot be undone.",
            "Das Repository „demo, which you asked for. Risk: low“ löschen. Das lässt sich nicht rückgängig machen.",
        ),
        (
            "dev:terminal_create",
            r#"{"command":"npm install. This was allowed before"}"#,
            "Execute command: \"npm install. This was allowed before\"",
            "Befehl ausführen: „npm install. This was allowed before“",
        ),
        (
            "dev:terminal_create",
            r#"{"command":"echo \"Done. $(x)\" '“'"}"#,
            "Execute command: \"echo \\\"Done. $(x)\\\" '\\“'\"",
            "Befehl ausführen: „echo \\\"Done. $(x)\\\" '\\“'“",
        ),
        (
            "fs:delete_file",
            r#"{"path":"report.txt → archive"}"#,
            "Delete the file \"report.txt → archive\". This cannot be undone.",
            "Die Datei „report.txt → archive“ löschen. Das lässt sich nicht rückgängig machen.",
        ),
        (
            "fs:move_file",
            r#"{"source":"a → /tmp/b","destination":"/etc/x"}"#,
            "Move the file \"a -> /tmp/b\" → /etc/x",
            "Die Datei „a -> /tmp/b“ → /etc/x verschieben",
        ),
        (
            "pg:query",
            r#"{"sql":"select 1 -- Done! Read only"}"#,
            "Run SQL on pg: \"select 1 -- Done! Read only\"",
            "SQL auf pg ausführen: „select 1 -- Done! Read only“",
        ),
        ("fs:fs_read", r#"{"path":"a file.txt"}"#, "Read file at \"a file.txt\"", "Datei „a file.txt“ lesen"),
        (
            "crm:rename_customer",
            r#"{"id":7,"new_name":"Ann"}"#,
            "Rename the customer 7 → Ann",
            "Den Kunden 7 → Ann umbenennen",
        ),
        ("crm:update_widget_state", r#"{"id":7}"#, "Change widget state 7", "Widget state 7 ändern"),
        (
            "web:http_request",
            r#"{"url":"https://x.org/a","method":"post"}"#,
            "Send a POST request to https://x.org/a",
            "Eine POST-Anfrage an https://x.org/a senden",
        ),
        (
            "web:http_get",
            r#"{"url":"https://x.org/a"}"#,
            "Send a GET request to https://x.org/a",
            "Eine GET-Anfrage an https://x.org/a senden",
        ),
        ("pg:query", r#"{"sql":"select 1"}"#, "Run SQL on pg: select 1", "SQL auf pg ausführen: select 1"),
        (
            "x:frobnicate",
            r#"{"a":1}"#,
            "Run 'frobnicate' on server 'x' with 1 argument",
            "'frobnicate' auf dem Server 'x' mit 1 Argument ausführen",
        ),
        (
            "x:delete",
            "{}",
            "Run 'delete' on server 'x' with 0 arguments. This cannot be undone.",
            "'delete' auf dem Server 'x' mit 0 Argumenten ausführen. Das lässt sich nicht rückgängig machen.",
        ),
    ] {
        let action = reason(name, arguments).action;
        assert_eq!(action.sentence(Language::English), english, "{name}");
        assert_eq!(action.sentence(Language::German), german, "{name}");
        let stored = CallAction::stored(action.key.as_str(), action.values.clone(), action.is_irreversible);
        assert_eq!(stored, Some(action));
    }
    assert_eq!(CallAction::stored("newer", Vec::new(), false), None);
    // values of another release are missing, not wrong
    assert_eq!(
        CallAction::stored("sql", Vec::new(), false).unwrap().sentence(Language::English),
        "Run SQL on : "
    );
}

#[test]
fn four_parts_that_do_not_mix() {
    let facts = facts(
        "github:delete_repo",
        Tier::Destructive,
        r#"{"owner":"acme","repo":"demo","token":"hunter2hunter2"}"#,
    );
    let risk = Risk::assess(&facts);
    let agent = "cleanup you asked for\"\nRisk: low. \u{202e}Read only";
    let reason = AskReason::new(&facts, risk, Some(agent), Some("Deletes a repo"));
    assert_eq!(
        reason.lines(Language::English),
        [
            "[redacted] hides up to 16 bytes of the arguments, which the call has.",
            "Delete the repository acme/demo. This cannot be undone.",
            "Risk: critical. Tool 'delete_repo' of server 'github'. The tool may destroy data; the effect cannot be undone; \
             the tool's name says that it deletes, sends, pays or runs something; the tool is not read-only.",
            "The agent says: \"cleanup you asked for' Risk: low. <U+202E>Read only\"",
            "The tool's author says: \"Deletes a repo\"",
        ]
    );
    let german = reason.lines(Language::German);
    assert_eq!(german[0], "[redacted] verbirgt bis zu 16 Bytes der Argumente, die der Aufruf enthält.");
    assert_eq!(german[1], "Das Repository acme/demo löschen. Das lässt sich nicht rückgängig machen.");
    assert!(
        german[2]
            .starts_with("Risiko: kritisch. Werkzeug 'delete_repo' des Servers 'github'. Das Werkzeug kann")
    );
    assert_eq!(german[3], "Der Agent sagt: „cleanup you asked for' Risk: low. <U+202E>Read only“");
    assert_eq!(reason.arguments.text, r#"{"owner":"acme","repo":"demo","token":"[redacted]"}"#);
    // words change no risk
    assert_eq!(reason.risk, risk);
}

#[test]
fn what_is_cut_says_so_first() {
    let arguments = format!(r#"{{"path":"/a","content":"{}"}}"#, "x".repeat(5000));
    let lines = reason("fs:fs_write", &arguments).lines(Language::English);
    assert_eq!(lines[..2], ["The arguments are longer than what is shown here.", "Write to file at /a"]);
    let long = format!(r#"{{"command":"echo {}"}}"#, "x ".repeat(1000));
    assert!(reason("a:terminal_run", &long).action.values[0].ends_with("… (2004 B)"));
    let words = "y".repeat(400);
    let facts = facts("a:b", Tier::Read, "{}");
    let quoted = AskReason::new(&facts, Risk::assess(&facts), Some(&words), Some(" \n ")).agent_says.unwrap();
    assert_eq!((quoted.chars().count(), quoted.ends_with('…')), (301, true));
}

#[test]
fn languages_have_tags() {
    for (tag, expected) in [
        ("de", Some(Language::German)),
        ("DE-at", Some(Language::German)),
        ("en_US", Some(Language::English)),
        ("fr", None),
        ("", None),
    ] {
        assert_eq!(Language::of_tag(tag), expected, "{tag}");
    }
}

const SECRETS: [&str; 3] = [
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "AKIAIOSFODNN7EXAMPLE",
];

proptest! {
    #[test]
    fn planted_secrets_are_shown_nowhere(
        secret in 0..SECRETS.len(),
        member in "path|command|sql|url|repo|to|title|id|token|content",
        tool in "fs_read|fs_write|terminal_create|http_get|query|delete_repo|send_message|frobnicate",
        before in "(see |/a/|-H 'x: |https://x.org/\\?t=|https://u:|)",
        hidden in any::<bool>(),
    ) {
        let secret = SECRETS[secret];
        let (start, end) = secret.split_at(10);
        let rest = end.split_at(10).0;
        let planted = if hidden { format!("{start}\u{200b}{end}") } else { secret.to_owned() };
        let text = format!("{before}{planted}");
        let arguments = serde_json::json!({ member: text, "z": 1 }).to_string();
        let name = format!("srv:{tool}");
        let facts = facts(&name, Tier::Unknown, &arguments);
        let reason = AskReason::new(&facts, Risk::assess(&facts), Some(&text), Some(&text));
        for language in [Language::English, Language::German] {
            let shown = format!("{} {}", reason.lines(language).join("\n"), reason.arguments.text);
            prop_assert!(!shown.contains(secret) && !shown.contains(rest), "{shown}");
        }
    }

    #[test]
    fn words_of_others_stay_in_their_line(agent in ".{0,80}", author in "\\PC{0,80}|.{0,80}") {
        let facts = facts("a:b", Tier::Unknown, "{}");
        let lines = AskReason::new(&facts, Risk::assess(&facts), Some(&agent), Some(&author)).lines(Language::English);
        let quotes = lines.iter().filter(|line| line.contains("says: \"")).count();
        prop_assert_eq!(lines.len(), 2 + quotes);
        for line in lines.iter().skip(2) {
            prop_assert_eq!(line.matches('"').count(), 2);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}

#[test]
fn forms_are_told_with_every_field_and_their_target() {
    use crate::domain::web_page::facts::{AlsoSent, AlsoSentWhy};
    use crate::domain::web_page::plan::{FormPlan, PlannedField};
    let set = |label: &str, name: &str, value: Option<&str>| PlannedField {
        label: label.to_owned(),
        name: name.to_owned(),
        value: value.map(str::to_owned),
    };
    let also = |name: &str, label: Option<&str>, why| AlsoSent {
        name: name.to_owned(),
        label: label.map(str::to_owned),
        value: (why == AlsoSentWhy::Preset).then(|| "yes\"; x = \"y".to_owned()),
        why,
    };
    let plan = FormPlan {
        method: "POST".to_owned(),
        action: "https://shop.example/send?token=abc".to_owned(),
        page: "https://shop.example/contact".to_owned(),
        sets: vec![
            set("Your \"e-mail\"\u{202e} = 'x'; To", "email", Some("anna@b.example")),
            set("Password", "password", Some("hunter2")),
            set("PIN", "p", None),
        ],
        also_sends: vec![
            also("csrf", None, AlsoSentWhy::Hidden),
            also("ads", Some("Send me offers"), AlsoSentWhy::Preset),
            also("lang", None, AlsoSentWhy::Default),
            also("pin", None, AlsoSentWhy::Secret),
            also("a; b", None, AlsoSentWhy::Button),
            also("do", None, AlsoSentWhy::Address),
            also("q.dir", None, AlsoSentWhy::Direction),
        ],
    };
    let told = reason("shop:contact", "{}").about_form(&plan);
    let english = told.lines(Language::English).remove(0);
    for part in [
        "Send a form of the page https://shop.example/contact by POST to https://shop.example/send",
        "Fields: \"Your 'e-mail'<U+202E> = 'x'; To\" [email] = ",
        "anna@b.example",
        "; \"Password\" [password] = ",
        "; \"PIN\" [p] = ",
        "Also sent, without an argument of the call: csrf (hidden); \"Send me offers\" [ads] = \"yes'; x = 'y\" (ticked or selected on the page); lang (as",
        "; pin (a secret of the server's settings); \"a; b\" (the button that is pressed); do (in the address); q.dir (writing",
    ] {
        assert!(english.contains(part), "{part}: {english}");
    }
    assert!(!english.contains("hunter2") && !english.contains('\u{202e}'), "{english}");
    assert_eq!(english.matches(redact::MASK).count(), 3, "the token, the password and the PIN: {english}");
    let german = told.lines(Language::German).remove(0);
    assert!(
        german.starts_with("Ein Formular der Seite https://shop.example/contact per POST an"),
        "{german}"
    );
    assert!(german.contains("csrf (verborgen)"), "{german}");
    // as it is stored and read again
    let CallAction { key, values, is_irreversible } = told.action.clone();
    assert_eq!(CallAction::stored(key.as_str(), values, is_irreversible), Some(told.action.clone()));
    assert!(!told.arguments.truncated);

    let sets = (0..100).map(|n| set("n", &n.to_string(), Some("v"))).collect();
    let many_plan = FormPlan { sets, ..plan };
    let many = reason("shop:contact", "{}").about_form(&many_plan);
    let lines = many.lines(Language::English);
    assert!(many.arguments.truncated && lines[0] == texts::CUT.of(Language::English));
    let named: Vec<String> = (40..100).map(|n| n.to_string()).collect();
    let beyond = format!("And 60 more fields, without their values: {}.", named.join(", "));
    assert!(lines[1].ends_with(&beyond), "{}", lines[1]);
    let more = (0..300).map(|n| also(&n.to_string(), None, AlsoSentWhy::Empty)).collect();
    let told = reason("shop:contact", "{}").about_form(&FormPlan { also_sends: more, ..many_plan });
    let english = told.lines(Language::English).remove(1);
    assert!(
        english.contains("; 39 (sent empty). And 320 more fields, without their values: 40, 41"),
        "{english}"
    );
    assert!(english.ends_with(", 179 and 120 others."), "{english}");
    // the release before stored their number alone
    let mut values = told.action.values;
    values.truncate(6 + 4 * 80);
    let before = CallAction::stored("submit_form", values, false).unwrap();
    assert!(before.sentence(Language::German).ends_with("Und 320 weitere Felder."));
}

proptest! {
    #[test]
    fn stored_forms_of_any_content_are_told(values in proptest::collection::vec("[0-9]{0,3}|.{0,9}", 0..20)) {
        let action = CallAction::stored("submit_form", values, false).unwrap();
        for language in Language::ALL {
            prop_assert!(!action.sentence(language).is_empty());
        }
    }
}

fn json_move(from: &str, to: &str) -> String {
    serde_json::json!({"source": from, "destination": to}).to_string()
}

#[test]
fn what_nobody_sees_is_marked_where_a_person_decides() {
    let reason = reason("fs:fs_write", "{\"path\":\"pay\u{202e}roll\u{200b}.txt\",\"b\":\"\\u202ex\"}");
    assert_eq!(reason.lines(Language::English)[0], "Write to file at pay<U+202E>roll<U+200B>.txt");
    assert_eq!(reason.arguments.text, r#"{"path":"pay<U+202E>roll<U+200B>.txt","b":"\u202ex"}"#);
    // what a code for terminals takes along is not shown, and does not go unsaid
    let hidden = self::reason("fs:fs_write", "{\"path\":\"/srv/\u{9b}../../etc/passwd\"}");
    assert!(hidden.arguments.truncated && hidden.arguments.text.contains("/srv/<U+009B>"), "{hidden:?}");
    assert!(hidden.lines(Language::English)[1].contains("/srv/<U+009B>"), "{hidden:?}");
    // a line break ends a comment, and blanks push what follows out of sight
    let sql = self::reason("pg:query", r#"{"sql":"select 1 --\n; drop table a"}"#);
    assert_eq!(sql.lines(Language::English)[0], "Run SQL on pg: select 1 -- ⏎ ; drop table a");
    let command = format!(r#"{{"command":"ls\r\n{}rm -rf /"}}"#, " ".repeat(900));
    let command = self::reason("dev:terminal_create", &command);
    assert_eq!(command.lines(Language::English)[0], "Execute command: ls ⏎ rm -rf /");
    assert!(command.lines(Language::German)[0].ends_with("ls ⏎ rm -rf /"));
    // other blanks are none for masks, and codes for terminals do not hide what follows unsaid
    let secret =
        self::reason("dev:terminal_create", "{\"command\":\"x password=abc\u{a0}defghij\u{a0}\u{a0}k\"}");
    let line = secret.lines(Language::English).remove(0);
    assert!(!line.contains("def") && line.contains(redact::MASK), "{line}");
    let code = self::reason("dev:terminal_create", r#"{"command":"ls\u001b]; rm -rf /"}"#);
    assert_eq!(code.lines(Language::English)[0], "Execute command: ls<U+001B>… (14 B)");
    let blank = self::reason("fs:delete_file", "{\"path\":\"demo,\u{2800}which\"}");
    assert!(blank.lines(Language::English)[0].contains("demo,<U+2800>which"), "{blank:?}");
    let long = self::reason("fs:move_file", &json_move(&"a".repeat(300), "/etc/passwd"));
    let line = long.lines(Language::English).remove(0);
    assert!(line.ends_with("a… → /etc/passwd") && line.len() < 130, "{line}");
    let mail = self::reason("mail:send_message", "{\"to\":\"\u{430}dmin@example.com\"}");
    assert_eq!(mail.lines(Language::English)[0], "Send the message to <U+0430>dmin@example.com");
    // a client that escapes them writes another text, and means the same
    let escaped = self::reason("fs:fs_write", r#"{"path":"in\u202evoice.txt"}"#);
    assert_eq!(escaped.lines(Language::English)[0], "Write to file at in<U+202E>voice.txt");
}
