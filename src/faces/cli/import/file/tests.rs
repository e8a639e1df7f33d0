use std::collections::BTreeMap;

use super::*;
use crate::domain::client_file::{FoundPlace, FoundServer};

/// Returns the servers of a file, one per line.
fn shown(text: &str) -> Result<String, String> {
    let pairs = |of: &BTreeMap<String, String>| {
        of.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>()
    };
    let line = |server: &FoundServer| {
        let place = match &server.place {
            FoundPlace::Http { url, headers } => format!("http {url}{}", pairs(headers)),
            FoundPlace::Program { argv, env } => format!("program {}{}", argv.join("|"), pairs(env)),
            FoundPlace::Unusable(why) => format!("unusable: {why}"),
        };
        let disabled = if server.is_disabled { " (disabled)" } else { "" };
        format!("{}{disabled}: {place} {}\n", server.name, server.left_out.join(","))
    };
    parse(text).map(|file| file.servers.iter().map(line).collect())
}

#[test]
fn json_of_cursor_claude_windsurf_and_gemini() {
    let found = shown(
        r#"{
          // Cursor
          "mcpServers": {
            "a": {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}", "X-Tries": 3}},
            "b": {"type": "http", "url": "https://b.example/mcp", "oauth": {}},
            "c": {"serverUrl": "https://c.example/mcp", "disabled": true},
            "d": {"httpUrl": "https://d.example/mcp", "disabledTools": ["x"]},
            "e": {"command": "npx", "args": ["-y", "thing"], "env": {"KEY": "x"}, "cwd": "/srv"},
            "f": {"type": "sse", "url": "https://f.example/sse"},
            "g": {"command": "x", "url": "https://g.example"},
            "h": {"note": 1},
          },
        }"#,
    );
    insta::assert_snapshot!(found.unwrap(), @r"
    a: http https://a.example/mcp Authorization=Bearer ${env:TOKEN} X-Tries=3 
    b: http https://b.example/mcp oauth
    c (disabled): http https://c.example/mcp 
    d: http https://d.example/mcp disabledTools
    e: program npx|-y|thing KEY=x cwd
    f: unusable: speaks HTTP+SSE of 2024-11-05, which the gateway does not: give its address of streamable HTTP, which often ends with /mcp 
    g: unusable: has an address and a command 
    h: unusable: has neither an address nor a command note
    ");
}

#[test]
fn json_of_vs_code() {
    let found = shown(
        r#"{"inputs": [{"id": "key", "type": "promptString", "password": true}],
            "servers": {"a": {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "${input:key}"}},
                        "b": {"type": "stdio", "command": "uvx", "args": ["t"], "envFile": ".env"}}}"#,
    );
    insta::assert_snapshot!(found.unwrap(), @r"
    a: http https://a.example/mcp X-Key=${input:key} 
    b: program uvx|t envFile
    ");
}

#[test]
fn toml_of_codex() {
    let found = shown(
        r#"
model = "m" # a comment
[mcp_servers.a]
url = "https://a.example/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-One" = "1" }
env_http_headers = { "X-Two" = "TWO" }
enabled = false
[mcp_servers."b c"]
command = "npx"
args = ["-y", "thing"]
env_vars = ["HOME"]
[mcp_servers."b c".env]
KEY = "x"
"#,
    );
    insta::assert_snapshot!(found.unwrap(), @r"
    a (disabled): http https://a.example/mcp Authorization=Bearer ${TOKEN} X-One=1 X-Two=${TWO} 
    b c: program npx|-y|thing KEY=x env_vars
    ");
}

/// Claude Desktop has no HTTP servers of its own: its users write the bridge.
#[test]
fn the_server_behind_a_bridge() {
    let found = shown(
        r#"{"mcpServers": {
            "a": {"command": "npx", "args": ["-y", "mcp-remote@0.15.1", "https://a.example/mcp", "--transport", "http-only",
                  "--header", "Authorization:${AUTH}", "--header", "X-One: 1"], "env": {"AUTH": "Bearer ${env:TOKEN}"}},
            "b": {"command": "/usr/bin/mcp-remote", "args": ["https://b.example/mcp"]},
            "c": {"command": "npx", "args": ["-y", "not-mcp-remote", "https://c.example"]}}}"#,
    );
    insta::assert_snapshot!(found.unwrap(), @r"
    a: http https://a.example/mcp Authorization=Bearer ${env:TOKEN} X-One=1 
    b: http https://b.example/mcp 
    c: program npx|-y|not-mcp-remote|https://c.example 
    ");
}

/// Variables that refer to one another would grow without end.
#[test]
fn variables_of_a_bridge_are_filled_in_once() {
    let bridge = |header: &str, env: &str| {
        shown(&format!(
            r#"{{"mcpServers": {{"a": {{"command": "mcp-remote", "args": ["https://a.example", "--header", "X: {header}"],
               "env": {env}}}}}}}"#
        ))
    };
    let nested = bridge("${A}${B}${C", r#"{"A": "${B}", "B": "${A}", "C": "x"}"#).unwrap();
    assert_eq!(nested, "a: http https://a.example X=${B}${A}${C \n");
    let long = bridge(&"${A}".repeat(100), &format!("{{\"A\": \"{}\"}}", "x".repeat(100))).unwrap();
    assert_eq!(long, "a: unusable: has a header of more than 8192 bytes \n");
}

#[test]
fn names_are_shown_on_one_line() {
    let fault = shown("{\"mcpServers\": {\"a\\u001b[2J\\nb\": 1}}").unwrap_err();
    assert_eq!(fault, "mcpServers.a\\u{1b}[2J\\nb must be an object");
}

#[test]
fn projects_with_servers_are_named() {
    let file = parse(
        r#"{"mcpServers": {}, "projects": {"/a": {"mcpServers": {"x": {"url": "https://x"}}}, "/b": {"mcpServers": {}}, "/c": {}}}"#,
    );
    assert_eq!(file.map(|file| file.projects), Ok(vec!["/a".to_owned()]));
}

#[test]
fn faults_name_the_place_and_no_value() {
    let of = |entry: &str| format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
    let table = [
        ("".to_owned(), "has no servers: it needs mcpServers"),
        ("{}".to_owned(), "has no servers: it needs mcpServers"),
        ("s3cret".to_owned(), "is neither JSON nor TOML (line 1)"),
        ("a = 1\n[b]\nc = s3cret".to_owned(), "is neither JSON nor TOML (line 3)"),
        (r#"{"a": s3cret}"#.to_owned(), "cannot be read as JSON: invalid JSON at byte"),
        (r#"{"mcpServers": "s3cret"}"#.to_owned(), "mcpServers must be an object"),
        (of(r#""s3cret""#), "mcpServers.a must be an object"),
        (of(r#"{"url": ["s3cret"]}"#), "mcpServers.a.url must be a text"),
        (of(r#"{"url": "x", "headers": "s3cret"}"#), "mcpServers.a.headers must be an object"),
        (of(r#"{"url": "x", "headers": {"K": ["s3cret"]}}"#), "mcpServers.a.headers.K must be a text"),
        (of(r#"{"command": "x", "args": "s3cret"}"#), "mcpServers.a.args must be a list of texts"),
        (of(r#"{"command": "x", "args": [{"a": "s3cret"}]}"#), "mcpServers.a.args must be a list of texts"),
    ];
    for (text, says) in table {
        let fault = shown(&text).expect_err(&text);
        assert!(fault.contains(says) && !fault.contains("s3cret"), "{text}: {fault}");
    }
}
