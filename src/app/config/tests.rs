mod kept_secrets;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::domain::intent::IntentMode;
use crate::domain::operation::OperationType;
use crate::domain::settings::ToolNames;

const GOOD: &str = "Kq83hv02bGkz71LwPq5xNn4tRr9cVy6s";
const OTHER: &str = "Zt5xNn4tRr9cVy6sKq83hv02bGkz71Lw";
const MASTER: &str = "qL0mJ9gqH0b2Hn0p4J7mQ3u3l8bq1c1Xk0k8hZ3nq9U=";
const URL: &str = "postgres://app:hunter2-hunter2@db/mcpproxy";

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A complete set of secrets and a database URL underneath `environment`.
fn complete(environment: Pairs<'_>) -> impl Iterator<Item = (String, String)> {
    const BASE: [(&str, &str); 4] = [
        ("DATABASE_URL", URL),
        ("MCPPROXY__AUTH__BOOTSTRAP_KEY", GOOD),
        ("MCPPROXY__SESSIONS__KEY", GOOD),
        ("MCPPROXY__SECRETS__MASTER_KEY", MASTER),
    ];
    let kept = BASE.iter().filter(|(name, _)| !environment.iter().any(|(other, _)| other == name));
    kept.chain(environment).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
}

fn load(file: Option<&Path>, environment: Pairs<'_>) -> Result<Config, ConfigError> {
    Config::load(file, complete(environment))
}

fn review(file: Option<&Path>, environment: Pairs<'_>) -> Result<Review, ConfigError> {
    Review::load(file, complete(environment))
}

fn bare(environment: Pairs<'_>) -> Result<Config, ConfigError> {
    Config::load(None, environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mcpproxy.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn sentence(result: Result<Config, ConfigError>) -> String {
    let text = result.map(|_| ()).unwrap_err().to_string();
    assert!(text.ends_with('.') && !text.contains(".."), "not a sentence: {text}");
    text
}

#[test]
fn the_defaults_are_what_the_contract_says() {
    let config = load(None, &[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.admin_listen.unwrap().to_string(), "127.0.0.1:9090");
    assert_eq!(config.stale_max, Duration::from_secs(30));
    assert_eq!(config.limits.request_bytes_max, 4 << 20);
    assert_eq!(config.limits.response_bytes_max, 16 << 20);
    assert_eq!(config.limits.activity_flush, Duration::from_millis(50));
    assert_eq!(config.limits.drain, Duration::from_secs(25));
    assert_eq!(config.activity.preview_bytes, 4096);
    assert!(!config.direct.enabled && config.defaults.strict_server_validation);
    assert_eq!(config.defaults.intent_declaration, IntentMode::Inferred);
    assert_eq!(config.defaults.max_operation, OperationType::Destructive);
    assert_eq!(config.defaults.allowed_tools, ["*"]);
    assert_eq!((config.defaults.rate_limit, config.defaults.response_limit), (None, 20_000));
    assert_eq!(config.telemetry.otlp_endpoint, None);
    assert!(config.egress_allow.is_empty() && config.stdio_commands.is_empty());
    assert!(!config.host.in_kubernetes && config.host.search_path.is_empty());
}

#[test]
fn the_later_source_wins() {
    let (_dir, path) =
        file("[server]\nlisten = \"127.0.0.1:1\"\nadmin_listen = \"\"\n[limits]\ndrain_s = 7\n");
    let config = load(Some(&path), &[("MCPPROXY__SERVER__LISTEN", "127.0.0.1:2")]).unwrap();
    assert_eq!(config.server.listen.port(), 2);
    assert_eq!(config.server.admin_listen, None);
    assert_eq!(config.limits.drain, Duration::from_secs(7));
    let review = review(Some(&path), &[("MCPPROXY__SERVER__LISTEN", "127.0.0.1:2")]).unwrap();
    let origin = |name: &str| review.settings.iter().find(|s| s.name == name).unwrap().origin.clone();
    assert_eq!(origin("server.listen"), "environment variable MCPPROXY__SERVER__LISTEN");
    assert_eq!(origin("limits.drain_s"), format!("in {}", path.display()));
    assert_eq!(origin("limits.call_timeout_s"), "the built-in default");
}

#[test]
fn the_database_url_has_two_variables() {
    let url = |config: Config| match config.database.location {
        DatabaseLocation::Url { url, direct_url } => {
            (url.expose().to_owned(), direct_url.expose().to_owned())
        }
        DatabaseLocation::Private { .. } => panic!("a URL was given"),
    };
    let own = "postgresql://other/db";
    assert_eq!(url(load(None, &[]).unwrap()), (URL.to_owned(), URL.to_owned()));
    assert_eq!(url(load(None, &[("MCPPROXY__DATABASE__URL", own)]).unwrap()).0, own);
    assert_eq!(
        url(load(None, &[("MCPPROXY__DATABASE__DIRECT_URL", own)]).unwrap()),
        (URL.to_owned(), own.to_owned())
    );
    let (_dir, path) = file(&format!("[database]\nurl = \"{own}\""));
    assert_eq!(url(load(Some(&path), &[]).unwrap()).0, URL);
    assert_eq!(url(load(Some(&path), &[("DATABASE_URL", "")]).unwrap()).0, own);
}

#[test]
fn values_are_read_as_the_environment_writes_them() {
    let sessions = format!(" {GOOD}\n, {OTHER} ,");
    let environment = [
        ("MCPPROXY__SESSIONS__KEY", &*sessions),
        ("MCPPROXY__EGRESS__ALLOW", "127.0.0.0/8, ::1/128"),
        ("MCPPROXY__ENABLE_DIRECT_ENDPOINT", "true"),
        ("MCPPROXY__TELEMETRY__SAMPLE_RATIO", "1"),
        ("MCPPROXY__TELEMETRY__OTLP_PROTOCOL", "grpc"),
        ("MCPPROXY__DEFAULTS__RATE_LIMIT", "60"),
        ("MCPPROXY__DEFAULTS__TOOL_NAMES", "safe"),
        (
            "MCPPROXY__STDIO__COMMANDS",
            r#"{"git":{"argv":["/bin/git","mcp"],"env":{"T":"s3cret"},"tenants":["*"]}}"#,
        ),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("PATH", "/a:.:/b"),
        ("MCPPROXY_API_KEY", "the CLI's"),
        ("MCPPROXY_SERVICE_HOST", "10.1.2.3"),
    ];
    let config = load(None, &environment).unwrap();
    assert_eq!(config.session_keys.iter().map(Secret::expose).collect::<Vec<_>>(), [GOOD, OTHER]);
    assert_eq!(config.egress_allow.len(), 2);
    assert!(config.direct.enabled && config.host.in_kubernetes);
    assert_eq!(config.telemetry.otlp_protocol, OtlpProtocol::Grpc);
    assert_eq!((config.defaults.rate_limit, config.defaults.tool_names), (Some(60), ToolNames::Safe));
    assert_eq!(config.stdio_commands["git"].argv, ["/bin/git", "mcp"]);
    assert_eq!(config.stdio_commands["git"].env["T"].expose(), "s3cret");
    assert_eq!(config.host.search_path, [Path::new("/a"), Path::new("/b")]);
    let shown = format!("{config:#?} {:?}", review(None, &environment).unwrap());
    for secret in [GOOD, OTHER, MASTER, "s3cret", "hunter2"] {
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}

#[test]
fn a_list_in_brackets_is_refused_where_it_is_a_text() {
    let lists = layers::built_in().unwrap();
    let lists = lists.iter().filter(|(_, setting)| matches!(setting.value, config::ValueKind::Array(_)));
    let lists: Vec<&String> = lists.map(|(name, _)| name).collect();
    assert!(lists.len() >= 6, "{lists:?}");
    for (key, text) in lists.iter().flat_map(|key| {
        [
            format!("[{GOOD}, {OTHER}]"),
            format!("[\"{GOOD}\"]"),
            format!(" [{GOOD}]\n"),
            format!("[{GOOD}],[{OTHER}]"),
            format!("[{GOOD}],{OTHER}"),
            format!("[{GOOD},{OTHER}"),
            format!("{GOOD},{OTHER}]"),
            format!("[::1],{GOOD}]"),
            format!("\"{GOOD},{OTHER}\""),
            format!("'{GOOD}','{OTHER}'"),
            format!("{GOOD},{OTHER}'"),
            format!("{OTHER}\n\"{GOOD}\"\n"),
            format!("\"{GOOD}\""),
        ]
        .map(|text| (*key, text))
    }) {
        let variable = names::variable(key);
        let said = sentence(load(None, &[(&variable, &text)]));
        assert!(
            said.contains(&variable) && said.contains("without brackets") && !said.contains(GOOD),
            "{said}"
        );
        let (section, name) = key.split_once('.').unwrap();
        let (_dir, path) = file(&format!("[{section}]\n{name} = {text:?}"));
        let said = sentence(load(Some(&path), &[(&variable, "")]));
        assert!(said.contains(key.as_str()) && said.contains("without brackets"), "{said}");
    }
    let hosts =
        |text: &str| load(None, &[("MCPPROXY__SERVER__ALLOWED_HOSTS", text)]).unwrap().server.allowed_hosts;
    assert_eq!(hosts("[::1]"), ["[::1]"]);
    assert_eq!(hosts("[::1]:8080, localhost, [::1]"), ["[::1]:8080", "localhost", "[::1]"]);
    let origins = [("MCPPROXY__SERVER__ALLOWED_ORIGINS", "http://[::1], http://[::1]:80")];
    assert_eq!(load(None, &origins).unwrap().server.allowed_origins, ["http://[::1]", "http://[::1]:80"]);
    // brackets mean an address only in lists of hosts and origins
    assert!(sentence(load(None, &[("MCPPROXY__SESSIONS__KEY", "[::1]")])).contains("without brackets"));
    let (_dir, path) = file(&format!("[sessions]\nkey = [\"{OTHER}\", \"{GOOD}\"]"));
    let complete = complete(&[]).filter(|(name, _)| name != "MCPPROXY__SESSIONS__KEY");
    let config = Config::load(Some(&path), complete).unwrap();
    assert_eq!(config.session_keys.iter().map(Secret::expose).collect::<Vec<_>>(), [OTHER, GOOD]);
    let lines = format!("{GOOD}\n{OTHER}\n");
    let config = load(None, &[("MCPPROXY__SESSIONS__KEY", &lines)]).unwrap();
    assert_eq!(config.session_keys.iter().map(Secret::expose).collect::<Vec<_>>(), [GOOD, OTHER]);
}

#[test]
fn unknown_names_are_named_with_their_source() {
    for (name, parts) in [
        (
            "MCPPROXY__SERVER__LISTN",
            &["MCPPROXY__SERVER__LISTN", "did you mean MCPPROXY__SERVER__LISTEN?"] as &[&str],
        ),
        ("MCPPROXY__LIMITS__DRAIN_SECONDS", &["environment variable MCPPROXY__LIMITS__DRAIN_SECONDS"]),
        ("MCPPROXY__server__listen", &["did you mean MCPPROXY__SERVER__LISTEN?"]),
        ("MCPPROXY__SERVER_LISTEN", &["did you mean MCPPROXY__SERVER__LISTEN?"]),
        ("MCPPROXY_DATABASE_URL", &["did you mean MCPPROXY__DATABASE__URL?"]),
        ("MCPPROXY__", &["MCPPROXY__ is not a setting"]),
        ("MCPPROXY__LIMITS", &["MCPPROXY__LIMITS is not a setting"]),
        ("MCPPROXY__STDIO__COMMANDS__GIT", &["is not a setting"]),
    ] {
        let text = sentence(load(None, &[(name, GOOD)]));
        assert!(parts.iter().all(|part| text.contains(part)) && !text.contains(GOOD), "{name}: {text}");
    }
    for (toml, part) in [
        ("[server]\nlisen = 1", "`server.lisen`"),
        ("[server]\nlisen = 1", "did you mean server.listen?"),
        ("[activity]\ndrain_s = 1", "did you mean limits.drain_s?"),
        ("listen = 1", "`listen`"),
        ("[sever]", "`sever`"),
        ("limits = 3", "`limits`"),
        ("[stdio.commands.a]\nargv = [\"x\"]\ntenants = [\"*\"]\nextra = 1", "stdio.commands"),
    ] {
        let (_dir, path) = file(toml);
        let text = sentence(load(Some(&path), &[]));
        assert!(text.contains(part) && text.contains("mcpproxy.toml"), "{toml}: {text}");
    }
}

#[test]
fn wrong_values_are_refused_without_repeating_them() {
    let rows = [
        ("SERVER__LISTEN", "hunter2"),
        ("SERVER__LISTEN", ""),
        ("SERVER__ADMIN_LISTEN", "hunter2:80"),
        ("SERVER__ALLOWED_HOSTS", "http://hunter2/"),
        ("SERVER__ALLOWED_ORIGINS", "hunter2"),
        ("DATABASE__URL", "mysql://hunter2"),
        ("SEARCH__EMBEDDINGS_URL", "hunter2"),
        ("SEARCH__EMBEDDINGS_URL", "ftp://hunter2/"),
        ("SEARCH__EMBEDDINGS_URL", "https://me:hunter2@embeddings.example/"),
        // without a model
        ("SEARCH__EMBEDDINGS_URL", "http://hunter2/v1/embeddings"),
        ("SEARCH__EMBEDDINGS_API_KEY", "hunter2 hunter2"),
        ("SEARCH__EMBEDDINGS_BATCH", "257"),
        ("SEARCH__EMBEDDINGS_WAIT_MS", "0"),
        ("DATABASE__DIRECT_URL", "hunter2"),
        ("DATABASE__STATEMENT_CACHE", "-1"),
        ("AUTH__BOOTSTRAP_KEY", "hunter2"),
        ("AUTH__BOOTSTRAP_KEY", "Kq83hv02bGkz71 LwPq5xNn4tRr9cVy6s hunter2"),
        ("AUTH__STALE_MAX_S", "0"),
        ("SESSIONS__KEY", "Kq83hv02bGkz71LwPq5xNn4tRr9cVy6s,hunter2"),
        ("SECRETS__MASTER_KEY", "hunter2"),
        ("SECRETS__MASTER_KEY", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("EGRESS__ALLOW", "10.0.0.0/8,hunter2"),
        ("STDIO__COMMANDS", "hunter2"),
        ("STDIO__COMMANDS", r#"{"a":{"argv":[],"tenants":["hunter2"]}}"#),
        ("STDIO__COMMANDS", r#"{"a":{"argv":["hunter2"]}}"#),
        ("STDIO__COMMANDS", r#"{"a b":{"argv":["hunter2"],"tenants":["*"]}}"#),
        ("STDIO__COMMANDS", r#"{"a":{"argv":["x"],"tenants":["*"],"env":{"K":["hunter2"]}}}"#),
        ("DIRECT__ENABLED", "hunter2"),
        ("INTENT_DECLARATION__MODE", "hunter2"),
        ("ACTIVITY__RETENTION_DAYS", "0"),
        ("DEFAULTS__MAX_OPERATION", "hunter2"),
        ("DEFAULTS__ALLOWED_TOOLS", ""),
        ("DEFAULTS__RATE_LIMIT", "-1"),
        ("TELEMETRY__LOG_FORMAT", "hunter2"),
        ("TELEMETRY__OTLP_ENDPOINT", "http://me:hunter2@collector"),
        ("TELEMETRY__OTLP_ENDPOINT", "http://collector/v1?key=hunter2"),
        ("TELEMETRY__SAMPLE_RATIO", "1.5"),
        ("TELEMETRY__SAMPLE_RATIO", "NaN"),
        ("LIMITS__CALL_TIMEOUT_S", "0"),
        ("LIMITS__CALL_TIMEOUT_S", "9223372036854775807"),
        ("LIMITS__DRAIN_S", "hunter2"),
        ("LIMITS__RESPONSE_BYTES_MAX", "99999999999"),
        ("LIMITS__ACTIVITY_BATCH", "20001"),
    ];
    for (name, value) in rows {
        let variable = format!("MCPPROXY__{name}");
        let text = sentence(load(None, &[(&variable, value)]));
        let key = name.to_ascii_lowercase().replace("__", ".");
        assert!(text.contains(&key) && text.contains(&variable), "{variable}: {text}");
        assert!(!text.contains("hunter2"), "{variable}: {text}");
    }
}

#[test]
fn every_number_in_limits_is_bounded_on_both_sides() {
    let review = review(None, &[]).unwrap();
    let limits: Vec<_> = review.settings.iter().filter(|s| s.name.starts_with("limits.")).collect();
    assert!(limits.len() >= 27, "{}", limits.len());
    for limit in limits {
        // only a delay may be 0; for the memory budget, 0 is the default
        let may_be_0 = ["limits.drain_delay_s", "limits.memory_bytes_max"].contains(&&*limit.name);
        let least = if may_be_0 { "-0.5" } else { "0" };
        for bad in [least, "-1", "999999999999", "1.5", ""] {
            let variable = names::variable(&limit.name);
            assert!(load(None, &[(&variable, bad)]).is_err(), "{variable}={bad}");
        }
    }
}

#[test]
fn the_memory_budget_is_the_default_or_enough_for_a_request() {
    let of = |text| load(None, &[("MCPPROXY__LIMITS__MEMORY_BYTES_MAX", text)]);
    for (text, bytes) in [("0", 0), ("16777216", 16_777_216), ("274877906944", 274_877_906_944)] {
        assert_eq!(of(text).unwrap().limits.memory_bytes_max, bytes);
    }
    for text in ["1", "16777215", "274877906945"] {
        let refused = sentence(of(text));
        assert!(refused.contains("limits.memory_bytes_max") && refused.contains("16777216"), "{refused}");
    }
}

#[test]
fn a_login_by_browser_needs_its_other_settings() {
    let issuer = ("MCPPROXY__CONSOLE__ISSUER", "corp");
    let secret = ("MCPPROXY__CONSOLE__CLIENT_SECRET", "hunter2hunter2");
    let public = ("MCPPROXY__SERVER__PUBLIC_URL", "https://gw.example");
    assert!(sentence(load(None, &[issuer])).contains("server.public_url"));
    let alone = sentence(load(None, &[issuer, public, secret]));
    assert!(alone.contains("console.client_id") && !alone.contains("hunter2"), "{alone}");
    let client = ("MCPPROXY__CONSOLE__CLIENT_ID", "gateway");
    let config = load(None, &[issuer, public, secret, client]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    for url in ["http://gw.example/client.json", "gw.example"] {
        let refused = sentence(load(None, &[("MCPPROXY__OAUTH__CLIENT_METADATA_URL", url)]));
        assert!(refused.contains("oauth.client_metadata_url"), "{refused}");
    }
}

#[test]
fn a_broken_file_is_located_and_not_quoted() {
    let (_dir, path) = file("[auth]\nbootstrap_key = \"hunter2");
    let text = sentence(load(Some(&path), &[]));
    assert!(text.contains("line 2") && text.contains("mcpproxy.toml") && !text.contains("hunter2"), "{text}");
    let (_dir, path) = file("[auth]\nbootstrap_key = [\"hunter2\"]");
    let text = sentence(load(Some(&path), &[]));
    assert!(text.contains("auth.bootstrap_key") && !text.contains("hunter2"), "{text}");
    let text = sentence(load(Some(Path::new("/nonexistent/mcpproxy.toml")), &[]));
    assert!(text.contains("/nonexistent/mcpproxy.toml") && text.contains("cannot be read"), "{text}");
    let (_dir, path) = file(&"# hunter2\n".repeat(200_000));
    assert!(sentence(load(Some(&path), &[])).contains("larger than"));
}

#[test]
fn synonyms_agree_or_are_both_named() {
    let (_dir, path) = file("[intent_declaration]\nmode = \"required\"\nstrict_server_validation = false");
    let config = load(Some(&path), &[]).unwrap();
    assert_eq!(config.defaults.intent_declaration, IntentMode::Required);
    assert!(!config.defaults.strict_server_validation);
    let same = [("MCPPROXY__DEFAULTS__INTENT_DECLARATION", "required")];
    assert_eq!(load(Some(&path), &same).unwrap().defaults.intent_declaration, IntentMode::Required);
    let text = sentence(load(Some(&path), &[("MCPPROXY__DEFAULTS__INTENT_DECLARATION", "inferred")]));
    assert!(
        text.contains("intent_declaration.mode") && text.contains("defaults.intent_declaration"),
        "{text}"
    );
    let both = [("MCPPROXY__ENABLE_DIRECT_ENDPOINT", "true"), ("MCPPROXY__DIRECT__ENABLED", "false")];
    let text = sentence(load(None, &both));
    assert!(text.contains("enable_direct_endpoint") && text.contains("direct.enabled"), "{text}");
}

#[test]
fn the_documentation_has_every_setting_with_its_default() {
    let text = include_str!("../../../docs/configuration.md");
    let documented: BTreeSet<(String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let mut cells = row.split(" | ");
            let name = cells.next().unwrap().trim_end_matches('`').to_owned();
            let default = cells.next().unwrap().trim_matches('`').to_owned();
            assert!(cells.next().is_some_and(|meaning| meaning.len() > 5), "{name} has no meaning");
            (name, default)
        })
        .collect();
    let built_in = layers::built_in().unwrap();
    let known: BTreeSet<(String, String)> =
        built_in.iter().map(|(name, setting)| (name.clone(), values::shown(name, &setting.value))).collect();
    assert_eq!(documented, known);
}

#[test]
fn every_setting_of_the_built_in_file_is_explained() {
    let mut explained = false;
    for line in layers::DEFAULT_TOML.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(explained, "{line} has no comment");
        }
        explained = line.starts_with('#');
    }
}

proptest! {
    #[test]
    fn a_random_file_gets_a_sentence(text in "(\\[?[a-z_.]{0,12}\\]? ?=? ?[\"\\[{0-9a-z,}\\]\n]{0,12}\n?){0,8}") {
        let (_dir, path) = file(&text);
        let error = load(Some(&path), &[]).err().map(|error| error.to_string());
        prop_assert!(error.is_none_or(|error| error.ends_with('.') && error.len() < 700));
    }

    #[test]
    fn a_random_variable_is_refused(name in "[A-Z_]{0,30}", value in "\\PC{0,60}") {
        let result = load(None, &[(&format!("MCPPROXY__{name}"), &value)]);
        let known = layers::built_in().unwrap().keys().any(|key| names::variable(key) == format!("MCPPROXY__{name}"));
        prop_assert!(known || name == "ENABLE_DIRECT_ENDPOINT" || result.is_err());
    }
}
