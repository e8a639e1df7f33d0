//! `mcpproxy apply`: tenants become what a file says, and what they are already is left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::logins::{GATEWAY, SETTINGS, bearer};
use crate::support::{Api, Idp, Run, Stage, Tool, Upstream, cli_with};

const EXAMPLE: &str = include_str!("../../../docs/tenants.yaml");
const CREDENTIAL: &str = "Bearer s3cret-value";

/// A file, and whoever applies it.
struct Desk {
    folder: TempDir,
    platform: Api,
}

impl Desk {
    fn new(platform: Api) -> Desk {
        Desk { folder: tempfile::tempdir().unwrap(), platform }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Applies this text with the credential in the environment.
    async fn apply(&self, yaml: &str, more: &[&str]) -> Run {
        self.apply_with(&[("GITHUB_AUTHORIZATION", CREDENTIAL)], yaml, more).await
    }

    async fn apply_with(&self, env: &[(&str, &str)], yaml: &str, more: &[&str]) -> Run {
        let file = self.path("tenants.yaml");
        fs::write(&file, yaml).unwrap();
        let url = self.platform.base_url();
        let key = self.platform.key.clone().unwrap();
        // the tenants are those of the file, whatever the environment says
        let own = [("MCPPROXY_URL", &*url), ("MCPPROXY_API_KEY", &*key), ("MCPPROXY_TENANT", "nowhere")];
        let args = [&["apply", "-f", file.to_str().unwrap()], more].concat();
        let run = cli_with(&[&own[..], env].concat(), &args).await;
        assert!(!format!("{run:?}").contains("s3cret"), "{run:?}");
        run
    }

    /// Counts the recorded acts of the platform and in acme; reads are not acts.
    async fn acts(&self) -> usize {
        let path = "/api/v1/activity?type=admin";
        let mut records = self.platform.items(path).await;
        records.extend(self.platform.as_tenant("acme").items(path).await);
        records.iter().filter(|record| record["tier"] != "read").count()
    }
}

/// Returns the last line of the output that is not JSON: the counts.
fn counts(run: &Run) -> &str {
    run.out.lines().rfind(|line| !line.starts_with('{')).unwrap()
}

#[tokio::test]
async fn what_is_there_already_is_left_alone() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = Desk::new(stage.platform());
    let file = EXAMPLE.replace("https://mcp.example.com/mcp", &upstream.url);

    let rehearsed = desk.apply(&file, &["--dry-run"]).await.ok();
    assert_eq!(desk.platform.items("/api/v1/tenants").await, Vec::<Value>::new());
    let out = desk.path("keys.jsonl");
    let keys_out = ["--keys-out", out.to_str().unwrap()];
    let applied = desk.apply(&file, &keys_out).await.ok();
    assert_eq!(applied.out, rehearsed.out);
    assert_eq!(counts(&applied), "5 to create, 0 to change, 0 unchanged");
    for line in ["+ tenant acme", "+ tenant zeta", "~ acme quotas.keys: none → 50"] {
        assert!(applied.out.lines().any(|shown| shown == line), "{line}: {applied:?}");
    }

    let acme = desk.platform.as_tenant("acme");
    assert!(upstream.sent("authorization").contains(&CREDENTIAL.to_owned()));
    let server = acme.get("/api/v1/servers/github").await.expect(200);
    assert_eq!(
        (&server["connection"], &server["limits"]["call_timeout_s"]),
        (&json!("connected"), &json!(30))
    );
    let quotas = desk.platform.get("/api/v1/tenants/acme").await.expect(200)["quotas"].clone();
    assert_eq!((&quotas["keys"]["value"], &quotas["keys"]["origin"]), (&json!(50), &json!("tenant")));
    assert!(desk.platform.get("/api/v1/tenants/zeta").await.expect(200)["suspended_at"].is_string());
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    let keys = fs::read_to_string(&out).unwrap();
    let keys: Vec<Value> = keys.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named = |name: &str| keys.iter().find(|key| key["name"] == name).unwrap().clone();
    let agent = stage.gateway.anonymous().with_key(named("ana-ide")["key"].as_str().unwrap());
    let status = agent.get("/api/v1/status").await.expect(200);
    assert_eq!(
        (&status["role"], &status["owner"], &status["tenant"]),
        (&json!("agent"), &json!("ana"), &json!("acme"))
    );
    assert!(!applied.out.contains("mcpk_"), "{applied:?}");

    let acts = desk.acts().await;
    // the file of keys is there, and is not needed
    assert_eq!(desk.apply(&file, &keys_out).await.ok().out, "nothing to change\n");
    assert_eq!(desk.acts().await, acts);

    // no key is made when its secret cannot be kept
    let more = file.replace("{ name: ops,", "{ name: ops-2,");
    let refused = desk.apply(&more, &keys_out).await;
    assert!(refused.code == 2 && refused.err.contains("nothing was done"), "{refused:?}");
    assert_eq!(desk.acts().await, acts);
    let shown = desk.apply(&more, &[]).await.ok();
    let made: Value = serde_json::from_str(shown.out.lines().last().unwrap()).unwrap();
    assert_eq!((&made["tenant"], &made["name"]), (&json!("acme"), &json!("ops-2")));
    assert!(made["key"].as_str().unwrap().starts_with("mcpk_"));
    let again = desk.apply(&more, &[]).await.ok();
    assert_eq!((&*again.out, &*again.err), ("nothing to change\n", "not in the file: acme/keys/ops\n"));
}

#[tokio::test]
async fn what_differs_is_changed() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = Desk::new(stage.platform());
    let file = EXAMPLE.replace("https://mcp.example.com/mcp", &upstream.url);
    desk.apply(&file, &[]).await.ok();

    let elsewhere = upstream.url.replace("127.0.0.1", "localhost");
    let table = [
        ("servers: 20", "servers: null", "~ acme quotas.servers: 20 → none".to_owned()),
        ("rate_limit: 6000", "rate_limit: 7000", "~ acme settings.rate_limit: 6000 → 7000".to_owned()),
        ("enabled: true", "enabled: false", "~ acme/servers/github enabled: true → false".to_owned()),
        ("enabled: false", "enabled: true", "~ acme/servers/github enabled: false → true".to_owned()),
        (
            "auto_approve: false",
            "auto_approve: true",
            "~ acme/servers/github auto_approve: false → true".to_owned(),
        ),
        (
            "call_timeout_s: 30",
            "call_timeout_s: 20",
            r#"~ acme/servers/github limits: {"call_timeout_s":30} → {"call_timeout_s":20}"#.to_owned(),
        ),
        (
            "sampling: false",
            "sampling: true",
            concat!(
                r#"~ acme/servers/github relay: {"elicitation":true,"logging":false,"roots":false,"sampling":false} → "#,
                r#"{"elicitation":true,"logging":false,"roots":false,"sampling":true}"#
            )
            .to_owned(),
        ),
        (
            "headers:",
            "headers:\n          X-More: more",
            "~ acme/servers/github headers: authorization → authorization, x-more".to_owned(),
        ),
        // another origin takes headers and trust away: the file gives them back
        (&upstream.url, &elsewhere, format!("~ acme/servers/github url: {} → {elsewhere}", upstream.url)),
        (
            "role: agent\n        owner: ana",
            "role: agent\n        owner: eva",
            "~ acme/keys/ana-ide owner: ana → eva".to_owned(),
        ),
        (
            "owner: eva",
            "owner: eva\n        identity_id: 0199aaaa-0000-7000-8000-000000000001",
            "~ acme/keys/ana-ide identity_id: none → 0199aaaa-0000-7000-8000-000000000001".to_owned(),
        ),
        (
            "2040-01-31T00:00:00Z",
            "null",
            "~ acme/keys/ana-ide expires_at: 2040-01-31T00:00:00.000Z → none".to_owned(),
        ),
        (
            "max_operation: write",
            "max_operation: read",
            "~ acme/keys/ana-ide settings.max_operation: write → read".to_owned(),
        ),
        ("suspended: true", "suspended: false", "~ zeta suspended: true → false".to_owned()),
    ];
    let mut file = file;
    for (from, to, line) in table {
        assert!(file.contains(from), "{from}");
        file = file.replacen(from, to, 1);
        let run = desk.apply(&file, &[]).await.ok();
        assert_eq!(run.out, format!("{line}\n0 to create, 1 to change, 4 unchanged\n"));
        assert_eq!(desk.apply(&file, &[]).await.ok().out, "nothing to change\n");
    }
    let acts = desk.acts().await;
    let run = desk.apply(&file, &["--set-headers"]).await.ok();
    assert!(
        run.out.starts_with("~ acme/servers/github headers: authorization, x-more set again\n"),
        "{run:?}"
    );
    assert_eq!(desk.acts().await, acts + 1);
}

/// Queries of URLs are masked: they are compared all the same, and nobody sees them.
#[tokio::test]
async fn a_query_is_set_once_and_its_change_is_seen() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = Desk::new(stage.platform());
    let file = |url: &str, headers: &str| {
        format!("tenants: [{{name: acme, servers: [{{name: up, url: '{url}'{headers}}}]}}]")
    };
    let (plain, other) = (upstream.url.clone(), upstream.url.replace("/mcp", "/other"));
    let masked = format!("{plain}?[redacted]");
    let made = desk.apply(&file(&format!("{plain}?key=s3cret-1"), ""), &[]).await.ok();
    assert!(made.out.contains(&format!("+ acme/servers/up (http {masked})\n")), "{made:?}");
    let keys = "/api/v1/servers/up";
    let api = desk.platform.as_tenant("acme");
    api.patch(keys, &json!({"headers": {"X-Key": "kept"}})).await.expect(200);
    for (url, change) in [
        (format!("{plain}?key=s3cret-1"), None),
        (format!("{plain}?key=s3cret-2"), Some(format!("url: {masked} → {masked} (another query)"))),
        (format!("{plain}?key=s3cret-2"), None),
        (plain.clone(), Some(format!("url: {masked} → {plain}"))),
        (format!("{plain}?key=s3cret-2"), Some(format!("url: {plain} → {masked}"))),
    ] {
        let run = desk.apply(&file(&url, ""), &[]).await.ok();
        let expected = change.map_or("nothing to change\n".to_owned(), |change| {
            format!("~ acme/servers/up {change}\n0 to create, 1 to change, 1 unchanged\n")
        });
        assert_eq!(run.out, expected, "{url}");
        let asked = upstream.sent(":path").last().unwrap().clone();
        assert_eq!(format!("{}{asked}", plain.trim_end_matches("/mcp")), url);
    }
    // another query is no other place, another path is
    assert_eq!(api.get(keys).await.expect(200)["headers"], json!(["X-Key"]));
    let moved = desk.apply(&file(&format!("{other}?key=s3cret-2"), ""), &[]).await.ok();
    assert!(moved.out.contains(&format!("url: {masked} → {other}?[redacted]\n")), "{moved:?}");
    assert_eq!(api.get(keys).await.expect(200)["headers"], json!([]));
    desk.apply(&file(&masked, ""), &[]).await.failed(2, "tenants[0].servers[0].url");
}

#[tokio::test]
async fn a_file_that_makes_no_sense_changes_nothing() {
    let stage = Stage::start().await;
    let desk = Desk::new(stage.platform());
    let server = |more: &str| format!("tenants: [{{name: a}}, {{name: b, servers: [{{name: s, {more}}}]}}]");
    let table = [
        (server("urll: http://127.0.0.1:9"), "tenants[1].servers[0].urll"),
        (server("url: x, headers: {A: {env: NOT_THERE}}"), "tenants[1].servers[0].headers.A"),
        (server("url: x, headers: [s3cret]"), "tenants[1].servers[0].headers"),
        (server("url: x, headers: {A: *s3cret}"), "line 1"),
        ("tenants: [{name: a}, {name: a}]".to_owned(), "tenants[1].name"),
        ("tenants: [{name: a, settings: {colour: red}}]".to_owned(), "tenants[0].settings.colour"),
    ];
    for (file, says) in table {
        desk.apply(&file, &[]).await.failed(2, says);
    }
    desk.apply_with(&[], EXAMPLE, &[]).await.failed(2, "GITHUB_AUTHORIZATION is not set");
    assert_eq!(desk.platform.items("/api/v1/tenants").await, Vec::<Value>::new());
}

#[tokio::test]
async fn one_tenant_that_fails_stops_no_other() {
    let stage = Stage::start().await;
    let desk = Desk::new(stage.platform());
    let first = "tenants: [{name: a, suspended: true}, {name: b, keys: [{name: k, role: agent}]}]";
    desk.apply(first, &[]).await.ok();
    let file = "tenants:
      - {name: a, settings: {rate_limit: 5}, servers: [{name: s, url: 'http://127.0.0.1:9/mcp'}]}
      - {name: b, settings: {rate_limit: 5}, keys: [{name: k, role: auditor}]}
      - {name: c, suspended: true, servers: [{name: s, url: 'ftp://127.0.0.1/'}]}
      - {name: d}";
    let run = desk.apply(file, &[]).await;
    // a URL that the gateway does not take, keys that cannot change, a suspended tenant: the last two are worse
    assert_eq!(run.code, 3, "{run:?}");
    for says in ["a: it is suspended", "b: keys/k has the role agent", "c/servers/s: ", "3 of 4 tenants"] {
        assert!(run.err.contains(says), "{says}: {run:?}");
    }
    let tenants = desk.platform.items("/api/v1/tenants").await;
    let names: Vec<&str> = tenants.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    // what is to be served nothing is suspended all the same
    assert!(tenants[2]["suspended_at"].is_string(), "{tenants:?}");
    let settings = desk.platform.as_tenant("b").get("/api/v1/settings").await.expect(200);
    assert_eq!(settings["rate_limit"]["value"], Value::Null);

    let stranger = Desk::new(desk.platform.with_key("mcpk_wrong"));
    stranger.apply(file, &[]).await.failed(5, "unauthenticated");
}

#[tokio::test]
async fn a_key_keeps_its_ceiling_when_that_of_its_tenant_goes() {
    let stage = Stage::start().await;
    let desk = Desk::new(stage.platform());
    desk.apply("tenants: [{name: a, settings: {max_operation: read}, keys: [{name: k, role: agent}]}]", &[])
        .await
        .ok();
    let wider = "tenants: [{name: a, settings: {max_operation: null}, \
                 keys: [{name: k, role: agent, settings: {max_operation: write}}]}]";
    assert_eq!(counts(&desk.apply(wider, &[]).await.ok()), "0 to create, 2 to change, 0 unchanged");
    let tenant = desk.platform.as_tenant("a");
    let id = tenant.items("/api/v1/keys").await[0]["id"].as_str().unwrap().to_owned();
    let settings = tenant.get(&format!("/api/v1/keys/{id}/settings")).await.expect(200);
    assert_eq!(settings["max_operation"], json!({"value": "write", "origin": "key"}), "{settings}");
    assert_eq!(desk.apply(wider, &[]).await.ok().out, "nothing to change\n");
}

#[tokio::test]
async fn nothing_is_done_that_could_not_be_shown() {
    let stage = Stage::start().await;
    let desk = Desk::new(stage.platform());
    let file = desk.path("tenants.yaml");
    fs::write(&file, "tenants: [{name: a}]").unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_mcpproxy"));
    command.env_clear().env("MCPPROXY_URL", desk.platform.base_url());
    command.env("MCPPROXY_API_KEY", desk.platform.key.as_deref().unwrap());
    command.args(["apply", "-f", file.to_str().unwrap()]);
    command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    command.stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("nothing was done"), "{output:?}");
    assert_eq!(desk.platform.items("/api/v1/tenants").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_key_whose_answer_is_lost_is_spoken_of() {
    let stage = Stage::start().await;
    let mut desk = Desk::new(stage.platform());
    let direct = desk.platform.clone();
    let relay = relay_that_loses_new_keys(direct.base_url().trim_start_matches("http://").to_owned()).await;
    desk.platform = direct.at(&format!("http://{relay}"));
    let keys_out = desk.path("keys.jsonl");
    let file = "tenants: [{name: a, suspended: true, keys: [{name: k, role: agent}]}]";
    let run = desk.apply(file, &["--keys-out", keys_out.to_str().unwrap()]).await;
    assert_eq!(run.code, 6, "{run:?}");
    assert!(run.err.contains("key list --tenant a"), "{run:?}");
    assert_eq!(direct.as_tenant("a").items("/api/v1/keys").await.len(), 1, "it was made");
    assert!(direct.get("/api/v1/tenants/a").await.expect(200)["suspended_at"].is_string());
    assert!(!keys_out.exists(), "an empty file would stand in the way of the next run");
}

/// Passes connections on, but resets those on which a key is made once the gateway has answered.
async fn relay_that_loses_new_keys(to: String) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut gateway = tokio::net::TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move {
                let (mut asked, mut answered) = ([0; 16 * 1024], [0; 16 * 1024]);
                let mut loses = false;
                loop {
                    tokio::select! {
                        read = client.read(&mut asked) => {
                            let Ok(length @ 1..) = read else { return };
                            loses |= asked[..length].starts_with(b"POST /api/v1/keys");
                            gateway.write_all(&asked[..length]).await.unwrap();
                        }
                        read = gateway.read(&mut answered) => {
                            let Ok(length @ 1..) = read else { return };
                            if loses {
                                return;
                            }
                            client.write_all(&answered[..length]).await.unwrap();
                        }
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn logins_become_what_the_file_says() {
    let stage = Stage::with(&SETTINGS).await;
    let (desk, idp) = (Desk::new(stage.platform()), Idp::start().await);
    let file = format!(
        "tenants:
  - name: acme
    identity_rules:
      - {{ issuer: corp, role: agent, settings: {{ max_operation: read }} }}
issuers:
  - name: corp
    issuer: {}
    token_types: [at+jwt]
    tenant_claim: org
    tenants:
      - {{ value: acme-inc, tenant: acme }}
",
        idp.url
    );
    let rehearsed = desk.apply(&file, &["--dry-run"]).await.ok();
    assert_eq!(desk.platform.items("/api/v1/issuers").await, Vec::<Value>::new());
    let applied = desk.apply(&file, &[]).await.ok();
    assert_eq!(applied.out, rehearsed.out);
    assert_eq!(counts(&applied), "2 to create, 0 to change, 0 unchanged");
    for line in [
        &format!("+ issuers/corp ({}, token_types [\"at+jwt\"], tenant_claim org)", idp.url),
        "~ issuers/corp tenants: none → org=acme-inc:acme",
        "~ acme identity_rules: 0 → 1 rules, which differ from rules[0] on",
    ] {
        assert!(applied.out.lines().any(|shown| shown == line), "{line}: {applied:?}");
    }
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({"org": "acme-inc"})));
    assert_eq!(person.get("/api/v1/status").await.expect(200)["role"], "agent");
    assert_eq!(desk.apply(&file, &[]).await.ok().out.trim(), "nothing to change");

    // another list of rules and of tenants, and a field that goes; what is not named stays
    let changed = file.replace("role: agent", "role: operator").replace("[at+jwt]", "null");
    let changed = changed.replace("acme-inc", "acme-ltd");
    let applied = desk.apply(&changed, &[]).await.ok();
    assert_eq!(counts(&applied), "0 to create, 2 to change, 0 unchanged");
    assert_eq!(person.get("/api/v1/status").await.status, 403);
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({"org": "acme-ltd"})));
    assert_eq!(person.get("/api/v1/status").await.expect(200)["role"], "operator");
    let issuer = desk.platform.get("/api/v1/issuers/corp").await.expect(200);
    assert_eq!((&issuer["token_types"], &issuer["tenant_claim"]), (&Value::Null, &json!("org")));
    let less = desk.apply("tenants: [{ name: acme }]\nissuers: []\n", &[]).await.ok();
    assert!(less.err.contains("not in the file: issuers/corp"), "{less:?}");
    assert_eq!(less.out.trim(), "nothing to change");

    // another provider under the name is refused, and the rest of the file is applied
    let moved = changed.replace(&idp.url, "https://idp.example").replace("operator", "auditor");
    let refused = desk.apply(&moved, &[]).await;
    assert!(refused.code != 0 && refused.err.contains("cannot change to https://idp.example"), "{refused:?}");
    assert!(refused.err.contains("1 of 2 tenants and issuers"), "{refused:?}");
    assert_eq!(person.get("/api/v1/status").await.expect(200)["role"], "auditor");
}
