use serde_json::json;

use super::*;

fn said(found: Found) -> String {
    match found {
        Found::Good(text) => format!("ok {text}"),
        Found::Odd(text) => text,
    }
}

#[test]
fn servers_are_judged() {
    let server = |more: Value| {
        let mut server = json!({"enabled": true, "quarantined": false, "connection": "connected"});
        server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server
    };
    for (more, (waiting, blocked), want) in [
        (json!({}), (0, 0), "ok server   'up' is connected"),
        (json!({}), (2, 0), "has 2 tools that wait for approval: mcpproxy tools list up"),
        (json!({}), (0, 1), "ok server   'up' has 1 tool that is blocked: "),
        (json!({"enabled": false}), (0, 0), "upstream enable up"),
        (json!({"connection": "disconnected", "last_error": "refused"}), (0, 0), "not connected: refused"),
        (json!({"connection": "unknown"}), (0, 0), "nobody has reached it"),
        (
            json!({"connection": "unknown", "kind": "stdio"}),
            (0, 0),
            "its log says more: mcpproxy upstream logs up",
        ),
        (json!({"connection": "unknown", "kind": "http"}), (0, 0), "upstream update up --address URL"),
        (json!({"quarantined": true}), (0, 0), "unquarantine up"),
        (
            json!({"kind": "web_page"}),
            (0, 0),
            "no form of its pages has become a tool: mcpproxy page report up",
        ),
        (json!({"kind": "web_page"}), (0, 1), "ok server   'up' has 1 tool that is blocked: "),
    ] {
        let withheld = Withheld { list: "tools", noun: "tool", waiting, blocked };
        let mut found = judge(&server(more), "up", &[withheld], &ToolTally::default());
        assert_eq!(found.len(), 1, "{want}");
        let said = said(found.remove(0));
        assert!(said.contains(want), "{said}");
    }
}

/// An address is not what is wrong with a server that wants a login.
#[test]
fn a_server_that_wants_a_login_is_given_one() {
    let error = "it wants credentials or a login, or others than it gets (HTTP status 401); give a header, most often \
                 Authorization, with mcpproxy upstream update NAME --header HEADER=- (it reads the value from standard \
                 input; name all headers of the server)";
    let server = json!({"enabled": true, "kind": "http", "connection": "disconnected", "last_error": error});
    let said = obstacle(&server, "up").unwrap();
    assert!(said.contains("mcpproxy upstream update up --header HEADER=-"), "{said}");
    assert!(!said.contains("--address") && !said.contains("NAME"), "{said}");
    // a server that was connected before says no more than the status
    let short = error.split_once(';').unwrap().0;
    let server = json!({"enabled": true, "kind": "http", "connection": "disconnected", "last_error": short});
    assert_eq!(obstacle(&server, "up").unwrap(), said);
}

#[test]
fn every_kind_that_is_withheld_has_a_line() {
    let server = json!({"enabled": true, "quarantined": false, "connection": "connected"});
    let of = |list, noun, waiting, blocked| Withheld { list, noun, waiting, blocked };
    let withheld = [
        of("tools", "tool", 1, 0),
        of("prompts", "prompt", 0, 0),
        of("resources", "resource", 0, 2),
        of("resources", "template", 3, 1),
    ];
    let said: Vec<String> =
        judge(&server, "up", &withheld, &ToolTally::default()).into_iter().map(said).collect();
    assert_eq!(
        said,
        [
            "server   'up' has 1 tool that waits for approval: mcpproxy tools list up",
            "ok server   'up' has 2 resources that are blocked: mcpproxy resources list up",
            "server   'up' has 3 templates that wait for approval: mcpproxy resources list up",
            "ok server   'up' has 1 template that is blocked: mcpproxy resources list up",
        ]
    );
}

#[test]
fn keys_are_judged() {
    let open = json!({"max_operation": "destructive", "allowed_tools": ["*"]});
    let me = |role: &str, settings: &Value| json!({"role": role, "tenant": "acme", "key_id": "k1", "suspended": false, "settings": settings});
    let narrow = json!({"max_operation": "read", "allowed_tools": ["a:*", "*:list_*"]});
    let of = |me: &Value| key(me).into_iter().map(said).collect::<Vec<_>>().join("\n");
    assert_eq!(of(&me("agent", &open)), "");
    assert_eq!(of(&me("auditor", &narrow)), "");
    let narrowed = of(&me("agent", &narrow));
    for want in [
        "ok key      has no tools above max_operation, read; ",
        "allowed_tools, a:*, *:list_*; ",
        "key settings k1",
    ] {
        assert!(narrowed.contains(want), "{narrowed}");
    }
    assert!(narrowed.lines().all(|line| line.starts_with("ok ")), "{narrowed}");
    for (from, want) in [("tenant", "its tenant's"), ("deployment", "defaults.allowed_tools")] {
        let outer =
            json!({"max_operation": "destructive", "allowed_tools": null, "allowed_tools_from": from});
        let said = of(&me("agent", &outer));
        assert!(said.starts_with("ok ") && said.contains(want), "{said}");
    }
    let nothing = of(&me("agent", &json!({"max_operation": "destructive", "allowed_tools": []})));
    assert!(nothing.starts_with("key      has no tools: allowed_tools is []"), "{nothing}");
    let mut suspended = me("platform", &open);
    suspended["suspended"] = true.into();
    assert!(of(&suspended).contains("tenant resume acme"));
    // a gateway that does not report settings
    assert_eq!(of(&json!({"role": "agent", "tenant": "acme"})), "");
}

#[test]
fn asks_without_anybody_to_answer_are_found() {
    let of = |role: &str, [pending, asking, unanswered, unapproved]: [u64; 4]| {
        let figures = json!({"pending": pending, "asking_keys": asking, "unanswered_keys": unanswered,
            "unapproved_keys": unapproved});
        let found = consent(&json!({"role": role, "consent": figures}));
        found.into_iter().map(said).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(of("admin", [0, 0, 0, 0]), "");
    let well = "ok consent  calls of 2 keys may ask a person, and somebody may answer";
    assert_eq!(of("admin", [0, 2, 0, 0]), well);
    let waits = "ok consent  1 permission request waits for a person: mcpproxy consent list --state pending";
    assert_eq!(of("approver", [1, 0, 0, 0]), waits);
    let none = "ok consent  calls of this key may ask a person, and only the bootstrap key may answer; an admin adds \
                another: mcpproxy key add --role approver --owner NAME";
    assert_eq!(of("agent", [0, 1, 1, 0]), none);
    let both = of("auditor", [3, 4, 1, 2]);
    assert_eq!(both.lines().count(), 3, "{both}");
    for want in [
        "ok consent  calls of 1 key may ask a person, and only the bootstrap key may answer",
        "consent  calls of 2 keys may need the approval of another person, and there is none",
        "ok consent  3 permission requests wait",
    ] {
        assert!(both.contains(want), "{both}");
    }
    let keys: Vec<Value> = (1..=5).map(|n| json!({"key_id": format!("k{n}"), "owner": "ana"})).collect();
    let figures = json!({"asking_keys": 9, "unapproved_keys": 7, "unapproved": keys});
    let found = consent(&json!({"role": "admin", "consent": figures}));
    let found = found.into_iter().map(said).collect::<Vec<_>>().join("\n");
    let named = "consent  calls of 7 keys (k1 of ana, k2 of ana, k3 of ana, k4 of ana, k5 of ana, and 2 more) may need";
    assert!(found.starts_with(named), "{found}");
    // a gateway that does not report it, and a key that sees no number
    assert!(consent(&json!({"role": "agent"})).is_empty());
    assert!(consent(&json!({"role": "agent", "consent": {"pending": null, "asking_keys": 0}})).is_empty());
}

#[test]
fn warnings_about_rules_are_found() {
    let warning = "Rule 'a': 'pg:*' matches no tool that is known now";
    let said: Vec<String> =
        warned(&json!({"version": 1, "warnings": [warning]})).into_iter().map(said).collect();
    assert_eq!(said, [format!("policy   {warning}; the rules: mcpproxy policy show")]);
    assert!(warned(&json!({"version": 1, "warnings": []})).is_empty());
}

#[test]
fn clocks_are_compared() {
    let now = DateTime::from_timestamp(1_769_860_800, 0).unwrap();
    for (date, want) in [
        (Some("Sat, 31 Jan 2026 12:00:00 GMT"), "ok clock    agrees"),
        (Some("Sat, 31 Jan 2026 11:59:00 GMT"), "60 s ahead"),
        (Some("Sat, 31 Jan 2026 12:01:00 GMT"), "-60 s ahead"),
        (Some("yesterday"), "not compared"),
        (None, "not compared"),
    ] {
        let said = said(clock(date, now));
        assert!(said.contains(want), "{said}");
    }
}
