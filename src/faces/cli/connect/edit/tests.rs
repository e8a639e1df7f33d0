use clap::ValueEnum;
use serde_json::json;

use super::*;

const URL: &str = "http://gateway/mcp";
const KEY: &str = "mcpk_x";

fn written(client: ConnectedClient, text: &str) -> Result<String, String> {
    WrittenServer { client, name: "mcpproxy", url: URL, key: KEY }.added_to(text)
}

#[test]
fn a_new_file_has_the_form_of_its_client() {
    let of = |client| written(client, "").unwrap();
    insta::assert_snapshot!(of(ConnectedClient::ClaudeCode), @r#"
    {
      "mcpServers": {
        "mcpproxy": {
          "type": "http",
          "url": "http://gateway/mcp",
          "headers": {"X-API-Key": "mcpk_x"}
        }
      }
    }
    "#);
    insta::assert_snapshot!(of(ConnectedClient::Codex), @r#"
    [mcp_servers.mcpproxy]
    url = "http://gateway/mcp"
    http_headers = { X-API-Key = "mcpk_x" }
    "#);
    for client in ConnectedClient::value_variants() {
        let shown = client.known().new_file("mcpproxy", URL, KEY);
        assert_eq!(shown, of(*client), "the console shows what is written here");
    }
    let (key, headers) = (json!({"X-API-Key": KEY}), "headers");
    for (client, section, server) in [
        (ConnectedClient::ClaudeCode, "mcpServers", json!({"type": "http", "url": URL, headers: key})),
        (ConnectedClient::Cursor, "mcpServers", json!({"url": URL, headers: key})),
        (ConnectedClient::VsCode, "servers", json!({"type": "http", "url": URL, headers: key})),
        (ConnectedClient::Gemini, "mcpServers", json!({"httpUrl": URL, headers: key})),
        (ConnectedClient::Windsurf, "mcpServers", json!({"serverUrl": URL, headers: key})),
    ] {
        let tree: Value = serde_json::from_str(&of(client)).unwrap();
        assert_eq!(tree, json!({section: {"mcpproxy": server}}), "{client:?}");
        assert_eq!(server_in(&of(client), client, "mcpproxy"), Some(server));
    }
    let server = server_in(&of(ConnectedClient::Codex), ConnectedClient::Codex, "mcpproxy");
    assert_eq!(server, Some(json!({"url": URL, "http_headers": key})));
}

#[test]
fn others_and_comments_of_json_stay() {
    let cursor = |text: &str| written(ConnectedClient::Cursor, text).unwrap();
    insta::assert_snapshot!(cursor("{\n  // mine\n  \"theme\": \"dark\", // stays\n}\n"), @r#"
    {
      "mcpServers": {
        "mcpproxy": {
          "url": "http://gateway/mcp",
          "headers": {"X-API-Key": "mcpk_x"}
        }
      },
      // mine
      "theme": "dark", // stays
    }
    "#);
    let text = "{\n  \"mcpServers\": {\n    \"other\": {\"url\": \"x\"}, // é\n  },\n}\n";
    insta::assert_snapshot!(cursor(text), @r#"
    {
      "mcpServers": {
        "mcpproxy": {
          "url": "http://gateway/mcp",
          "headers": {"X-API-Key": "mcpk_x"}
        },
        "other": {"url": "x"}, // é
      },
    }
    "#);
    let text = "{\"mcpServers\": {\"a\": {}, \"mcpproxy\": {\"command\": \"npx\", \"disabled\": true, \"alwaysAllow\": [ \"x\" ]}, \"b\": {}}}";
    insta::assert_snapshot!(cursor(text), @r#"
    {"mcpServers": {"a": {}, "mcpproxy": {
          "url": "http://gateway/mcp",
          "headers": {"X-API-Key": "mcpk_x"},
          "alwaysAllow": [ "x" ]
        }, "b": {}}}
    "#);
    // a change that is there already changes nothing
    for text in ["", "{ }", "{\"mcpServers\":{}}", text] {
        assert_eq!(cursor(&cursor(text)), cursor(text), "{text}");
    }
}

/// An old entry that is switched off, or that brings credentials of its own, would not work with the key.
#[test]
fn what_would_keep_the_entry_off_goes() {
    let text = r#"{"mcpServers": {"mcpproxy": {"disabled": true, "headersHelper": "x", "oauth": {}, "auth": {}, "url": "x", "a": 1}}}"#;
    let old = server_in(text, ConnectedClient::Cursor, "mcpproxy").unwrap();
    assert_eq!(taken_away(&old, ConnectedClient::Cursor), ["auth", "disabled", "headersHelper", "oauth"]);
    let new = written(ConnectedClient::Cursor, text).unwrap();
    let server = json!({"url": URL, "headers": {"X-API-Key": KEY}, "a": 1});
    assert_eq!(server_in(&new, ConnectedClient::Cursor, "mcpproxy"), Some(server));
    let text = "[mcp_servers.mcpproxy]\nurl = \"x\"\nenabled = false # off\nbearer_token_env_var = \"X\"\na = true\n";
    let old = server_in(text, ConnectedClient::Codex, "mcpproxy").unwrap();
    assert_eq!(taken_away(&old, ConnectedClient::Codex), ["bearer_token_env_var", "enabled"]);
    let new = written(ConnectedClient::Codex, text).unwrap();
    let server = json!({"url": URL, "http_headers": {"X-API-Key": KEY}, "a": true});
    assert_eq!(server_in(&new, ConnectedClient::Codex, "mcpproxy"), Some(server));
    let on = written(ConnectedClient::Codex, "[mcp_servers.mcpproxy]\nenabled = true\n").unwrap();
    assert!(on.contains("enabled = true"), "{on}");
}

#[test]
fn others_and_comments_of_toml_stay() {
    let text = "# mine\nmodel = \"m\"\n\n[mcp_servers.other]\nurl = \"x\" # stays\n\n\
                [mcp_servers.mcpproxy]\ncommand = \"npx\"\nargs = []\nrequired = true\n\n[tui]\ntheme = \"dark\"\n";
    insta::assert_snapshot!(written(ConnectedClient::Codex, text).unwrap(), @r#"
    # mine
    model = "m"

    [mcp_servers.other]
    url = "x" # stays

    [mcp_servers.mcpproxy]
    required = true
    url = "http://gateway/mcp"
    http_headers = { X-API-Key = "mcpk_x" }

    [tui]
    theme = "dark"
    "#);
}

#[test]
fn faults_repeat_nothing_of_the_file() {
    for (client, text, says) in [
        (ConnectedClient::Cursor, "s3cret", "cannot be read as JSON: invalid JSON at byte 0"),
        (ConnectedClient::Cursor, "[\"s3cret\"]", "cannot be read as JSON: must be a JSON object"),
        (ConnectedClient::Cursor, "{\"mcpServers\": [\"s3cret\"]}", "mcpServers must be an object"),
        (
            ConnectedClient::Cursor,
            "{\"mcpServers\": {\"mcpproxy\": \"s3cret\"}}",
            "mcpServers.mcpproxy must be an object",
        ),
        (ConnectedClient::Codex, "s3cret", "cannot be read as TOML"),
        (ConnectedClient::Codex, "mcp_servers = \"s3cret\"", "mcp_servers must be a table"),
        (ConnectedClient::Codex, "mcp_servers.mcpproxy = \"s3cret\"", "mcp_servers.mcpproxy must be a table"),
    ] {
        assert_eq!(written(client, text), Err(says.to_owned()), "{text}");
    }
}

/// A link is the server itself: what is installed is what would be written.
#[test]
fn links_hold_the_server() {
    use base64::Engine;
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let link = ConnectedClient::Cursor.known().link("my server", URL, KEY).unwrap();
    let config =
        link.strip_prefix("cursor://anysphere.cursor-deeplink/mcp/install?name=my%20server&config=").unwrap();
    let config = base64::engine::general_purpose::STANDARD.decode(decoded(config)).unwrap();
    let server: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(server, json!({"url": URL, "headers": {"X-API-Key": KEY}}));
    let link = ConnectedClient::VsCode.known().link("my server", URL, KEY).unwrap();
    let server: Value =
        serde_json::from_str(&decoded(link.strip_prefix("vscode:mcp/install?").unwrap())).unwrap();
    assert_eq!(
        server,
        json!({"name": "my server", "type": "http", "url": URL, "headers": {"X-API-Key": KEY}})
    );
    assert_eq!(ConnectedClient::Codex.known().link("x", URL, KEY), None);
}
