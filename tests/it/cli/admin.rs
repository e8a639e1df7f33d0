//! Tenants, keys and servers at the command line.

use serde_json::{Value, json};

use crate::support::upstream::Offers;
use crate::support::{Api, Stage, Tool, Upstream, cli, cli_reading};

const IDENTITY: &str = "0199aaaa-0000-7000-8000-000000000001";

#[tokio::test]
async fn from_nothing_to_a_call() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let platform = stage.platform();
    cli(&platform, &["tenant", "add", "acme"]).await.ok();
    cli(&platform, &["tenant", "add", "acme"]).await.failed(3, "conflict");
    assert_eq!(cli(&platform, &["tenant", "list"]).await.ok().rows().len(), 1);

    let platform = platform.as_tenant("acme");
    let add = ["key", "add", "--role", "admin", "--owner", "ana", "--identity-id", IDENTITY, "-o", "json"];
    let made = cli(&platform, &add).await.ok();
    assert_eq!(made.json()["identity_id"], IDENTITY);
    assert!(made.err.contains("not shown again") && !made.err.contains("Nobody is named"), "{made:?}");
    let admin = stage.gateway.anonymous().with_key(made.json()["key"].as_str().unwrap());
    let added = cli(&admin, &["upstream", "add", "notes", &upstream.url, "-o", "json"]).await.ok().json();
    assert_eq!((&added["connection"], &added["last_error"]), (&json!("connected"), &json!(null)));
    let set = ["key", "add", "--role", "agent", "--set", "max_operation=read", "-o", "json"];
    let agent = cli(&admin, &set).await.ok().json();
    let caller = stage.gateway.anonymous().with_key(agent["key"].as_str().unwrap());
    cli(&caller, &["call", "tool-read", "notes:look"]).await.ok();
    cli(&caller, &["call", "tool-write", "notes:look"]).await.failed(3, "operation_not_permitted");
    assert!(cli(&caller, &["status"]).await.ok().out.contains("acme"));

    let id = agent["id"].as_str().unwrap();
    let settings = cli(&admin, &["key", "settings", id, "--set", "max_operation=null"]).await.ok().out;
    assert!(
        settings.lines().any(|line| line.starts_with("max_operation:") && line.contains("deployment")),
        "{settings}"
    );
    cli(&admin, &["key", "settings", id, "--set", "max_operation"]).await.failed(2, "NAME=VALUE");
    cli(&admin, &["key", "settings", id, "--set", "colour=red"]).await.failed(2, "colour");
    cli(&admin, &["key", "settings", "--set", "rate_limit=5", "--version", "99"]).await.failed(3, "conflict");
    cli(&admin, &["key", "revoke", "ana"]).await.failed(2, "key list shows them");
    cli(&platform.clone().without_tenant(), &["key", "list"]).await.failed(2, "--tenant NAME");
    cli(&admin, &["key", "revoke", id]).await.ok();
    let states: Vec<String> =
        cli(&admin, &["key", "list"]).await.ok().rows().iter().map(|row| row[4].clone()).collect();
    assert_eq!(states.iter().filter(|state| *state == "revoked").count(), 1, "{states:?}");

    cli(&platform, &["tenant", "remove", "acme"]).await.failed(2, "--yes");
    cli(&platform, &["tenant", "remove", "acme", "--yes"]).await.ok();
    cli(&admin, &["status"]).await.failed(5, "unauthenticated");
}

#[tokio::test]
async fn a_key_is_rotated() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    assert!(!cli(&admin, &["key", "list"]).await.ok().out.contains("REPLACE"));
    let made = cli(&admin, &["key", "rotate", &agent.id, "--overlap", "90m", "-o", "json"]).await.ok();
    let end = made.json()["replaces"]["expires_at"].as_str().unwrap().to_owned();
    assert!(made.err.contains(&format!("The old key works until {end}.")), "{made:?}");
    let list = cli(&admin, &["key", "list"]).await.ok();
    assert!(list.out.contains(&format!("until {end}")), "{list:?}");
    assert!(
        list.out.lines().next().unwrap().ends_with("REPLACES                              REPLACED BY"),
        "{list:?}"
    );
    let row = |id: &str| list.rows().into_iter().find(|row| row[0] == id).unwrap();
    let (id, prefix) = (made.json()["id"].clone(), made.json()["prefix"].clone());
    let (old, new) = (row(&agent.id), row(id.as_str().unwrap()));
    assert_eq!(
        (old.last(), new.last()),
        (id.as_str().map(str::to_owned).as_ref(), Some(&agent.id)),
        "{list:?}"
    );
    assert!(new.contains(&prefix.as_str().unwrap().to_owned()), "{list:?}");
    assert!(!made.err.contains("The new key") && !made.err.contains("decisions"), "{made:?}");
    let new = agent.with_key(made.json()["key"].as_str().unwrap());
    cli(&new, &["status"]).await.ok();
    let ends = tenant.key(&json!({"role": "agent", "expires_at": "2040-01-31T00:00:00Z"})).await;
    let made = cli(&admin, &["key", "rotate", &ends.id]).await.ok();
    assert!(made.err.contains("The new key works until 2040-01-31T00:00:00.000Z."), "{made:?}");
    for bad in ["0s", "soon", "24", "-1h"] {
        let overlap = format!("--overlap={bad}");
        cli(&admin, &["key", "rotate", &agent.id, &overlap]).await.failed(2, "--overlap");
    }
    cli(&admin, &["key", "rotate", "ana"]).await.failed(2, "key list shows them");
    // a name will do where it is that of one key that works and is not replaced
    let named = tenant.key(&json!({"role": "agent", "name": "ide"})).await;
    let second = cli(&admin, &["key", "rotate", "ide", "-o", "json"]).await.ok().json();
    assert_eq!(second["replaces"]["id"], named.id);
    let third = cli(&admin, &["key", "rotate", "ide", "-o", "json"]).await.ok().json();
    assert_eq!(third["replaces"]["id"], second["id"]);
    let twin = tenant.key(&json!({"role": "agent", "name": "ide"})).await;
    let refused = cli(&admin, &["key", "rotate", "ide"]).await;
    refused.failed(2, "2 keys have the name 'ide', so give the id of one: ");
    assert!(refused.err.contains(&twin.id) && refused.err.contains(third["id"].as_str().unwrap()));
    assert!(!refused.err.contains(&named.id), "{refused:?}");
    cli(&admin, &["key", "revoke", "ide"]).await.failed(2, "4 keys have the name 'ide'");
    cli(&admin, &["key", "revoke", &twin.id]).await.ok();
    let other = tenant.key(&json!({"role": "agent", "name": "robot"})).await;
    cli(&admin, &["key", "revoke", "robto"]).await.failed(2, "did you mean 'robot'?");
    assert!(cli(&admin, &["key", "show", "robot"]).await.ok().out.contains(&other.id));
    cli(&admin, &["key", "settings", "robot", "--set", "max_operation=read"]).await.ok();
    let revoked = cli(&admin, &["key", "revoke", "robot"]).await.ok();
    assert!(revoked.err.contains(&format!("key robot ({}) is revoked", other.id)), "{revoked:?}");
    cli(&admin, &["key", "settings", "robot"]).await.failed(2, "no key that works has that name");
    assert!(cli(&admin, &["key", "show", "robot"]).await.ok().out.contains("revoked_at"));
    cli(&admin, &["key", "revoke", &twin.id]).await.ok();
    cli(&admin, &["key", "revoke", third["id"].as_str().unwrap()]).await.ok();
    let again = cli(&admin, &["key", "rotate", "ide", "-o", "json"]).await.ok().json();
    assert_eq!(again["replaces"]["id"], second["id"]);
    cli(&agent, &["key", "rotate", "ide"]).await.failed(5, "forbidden");
    cli(&agent, &["key", "rotate", &agent.id]).await.failed(5, "forbidden");
}

#[tokio::test]
async fn a_servers_life() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, operator) = (tenant.admin().await, tenant.operator().await);
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let headers = [
        "upstream",
        "add",
        "up",
        &upstream.url,
        "--header",
        "X-Up-Key=-",
        "--limit",
        "call_timeout_s=5",
        "--relay",
        "roots=true",
    ];
    let added = cli_reading(&operator, &headers, "s3cret-value\n").await.ok();
    assert!(added.err.contains("quarantine") && !added.out.contains("s3cret"), "{added:?}");
    assert!(upstream.sent("x-up-key").contains(&"s3cret-value".to_owned()));
    let taken = cli(&operator, &["upstream", "add", "up", &upstream.url]).await;
    taken.failed(3, "a server of this name exists (conflict): mcpproxy upstream update up changes it");
    cli(&operator, &["upstream", "unquarantine", "up"]).await.failed(5, "forbidden");
    cli(&admin, &["upstream", "unquarantine", "up"]).await.ok();
    for (verb, state) in [("disable", "disabled"), ("enable", "enabled"), ("quarantine", "quarantined")] {
        cli(&admin, &["upstream", verb, "up"]).await.ok();
        let row = cli(&admin, &["upstream", "list"]).await.ok().rows().remove(0);
        assert_eq!(row[..2], ["up", state]);
    }
    cli(&admin, &["upstream", "restart", "up"]).await.ok();
    let shown = cli(&admin, &["upstream", "show", "up"]).await.ok().out;
    assert!(
        shown.contains("call_timeout_s") && shown.contains("roots") && shown.contains("X-Up-Key"),
        "{shown}"
    );
    let relay = ["--relay", "sampling=true"];
    let changes = ["--auto-approve", "true", "--limit", "call_timeout_s=7", "--no-headers", "-o", "json"];
    let update = ["upstream", "update", "up"];
    let updated = cli(&admin, &[&update[..], &relay[..], &changes[..]].concat()).await.ok().json();
    assert_eq!(
        (&updated["auto_approve"], &updated["limits"], &updated["headers"]),
        (&json!(true), &json!({"call_timeout_s": 7}), &json!([]))
    );
    let relayed = json!({"elicitation": true, "sampling": true, "roots": false, "logging": false});
    assert_eq!(updated["relay"], relayed);
    cli(&admin, &update).await.failed(2, "nothing to change");
    let header = ["--header", "X-Up-Key=-"];
    cli_reading(&admin, &[&update[..], &header[..]].concat(), "second-value\n").await.ok();
    assert!(upstream.sent("x-up-key").contains(&"second-value".to_owned()));
    let elsewhere = upstream.url.replace("127.0.0.1", "localhost");
    let moved = cli(&admin, &[&update[..], &["--address", &elsewhere, "-o", "json"]].concat()).await.ok();
    assert_eq!((&moved.json()["quarantined"], &moved.json()["headers"]), (&json!(true), &json!([])));
    assert!(moved.err.contains("quarantine"), "{moved:?}");
    cli(&admin, &["upstream", "show", "other"]).await.failed(3, "not_found");
    cli(&admin, &["upstream", "add", "bad", "ftp://x"]).await.failed(2, "URL is refused");
    let refused = cli(&admin, &["upstream", "add", "bad", &upstream.url, "--header", "s3cret"]).await;
    refused.failed(2, "NAME=VALUE");
    assert!(!refused.err.contains("s3cret"), "{refused:?}");
    cli(&admin, &["upstream", "remove", "up"]).await.failed(2, "--yes");
    cli(&admin, &["upstream", "remove", "up", "--yes"]).await.ok();
    assert_eq!(cli(&admin, &["upstream", "list", "-o", "json"]).await.ok().json(), json!([]));
}

#[tokio::test]
async fn the_doctor_says_what_to_do() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let shown = |out: String| out.replace(&admin.base_url(), "[gateway]");
    let none = cli(&admin, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(none), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      admin of the tenant acme
    WARN  servers  there are none; add one: mcpproxy upstream add NAME URL
    ");
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let well = cli(&admin, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(well), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      admin of the tenant acme
    ok    tools    1 tool: 1 read
    ok    server   'up' is connected, 1 tool: 1 read
    ");
    upstream.set_tools(vec![Tool::reads("look"), Tool::reads("fresh")]);
    cli(&admin, &["upstream", "refresh", "up"]).await.ok();
    let waiting = cli(&admin, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(waiting), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      admin of the tenant acme
    ok    tools    1 tool: 1 read
    WARN  server   'up' has 1 tool that waits for approval: mcpproxy tools list up
    ");
    let agent = cli(&tenant.agent().await, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(agent), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      agent of the tenant acme
    ok    tools    1 tool: 1 read
    ok    servers  not looked at: this key may not see them
    ");
    let stranger = cli(&admin.with_key("mcpk_wrong"), &["doctor"]).await;
    assert_eq!(stranger.code, 5, "{stranger:?}");

    cli(&admin, &["tools", "block", "up:look"]).await.ok();
    let blocked = cli(&admin, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(blocked), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      admin of the tenant acme
    WARN  server   'up' has 1 tool that waits for approval: mcpproxy tools list up
    ok    server   'up' has 1 tool that is blocked: mcpproxy tools list up
    ");
    let narrow = json!({"max_operation": "read", "allowed_tools": ["*:list_*"]});
    let key = tenant.agent_with(narrow).await;
    let narrow = cli(&key, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(narrow.replace(&key.id, "[key]")), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      agent of the tenant acme
    ok    key      has no tools above max_operation, read; an admin reads and changes it with mcpproxy key settings [key]
    ok    key      has only the tools of allowed_tools, *:list_*; an admin reads and changes it with mcpproxy key settings [key]
    ok    servers  not looked at: this key may not see them
    ");
    let key = tenant.agent_with(json!({"allowed_tools": []})).await;
    let nothing = cli(&key, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(nothing.replace(&key.id, "[key]")), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      agent of the tenant acme
    WARN  key      has no tools: allowed_tools is []; an admin reads and changes it with mcpproxy key settings [key]
    ok    servers  not looked at: this key may not see them
    ");
    cli(&stage.platform(), &["tenant", "suspend", "acme"]).await.ok();
    let suspended = cli(&tenant.platform, &["doctor"]).await.ok().out;
    insta::assert_snapshot!(shown(suspended), @"
    ok    gateway  [gateway]/ answers and is ready
    ok    clock    agrees with the gateway's
    ok    key      platform of the tenant acme
    WARN  tenant   is suspended: its keys are refused; mcpproxy tenant resume acme
    WARN  server   'up' has 1 tool that waits for approval: mcpproxy tools list up
    ok    server   'up' has 1 tool that is blocked: mcpproxy tools list up
    ");
}

#[tokio::test]
async fn the_doctor_names_prompts_and_resources_that_nobody_gets() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let offers = |version: u8| {
        let definition =
            |member: &str, name: &str| json!({"name": format!("v{version}"), member: name}).to_string();
        let prompts = if version == 1 { vec!["one"] } else { vec!["one", "two"] };
        Offers {
            resources: Some(vec![definition("uri", "x://one"), definition("uri", "x://two")]),
            templates: vec![definition("uriTemplate", "y://{id}")],
            ..Offers::prompts(&prompts)
        }
    };
    upstream.set_offers(offers(1));
    tenant.add("up", &upstream).await;
    let well = cli(&admin, &["doctor"]).await.ok().out;
    assert!(!well.contains("WARN"), "{well}");
    upstream.set_offers(offers(2));
    cli(&admin, &["upstream", "refresh", "up"]).await.ok();
    cli(&admin, &["resources", "block", "up:x://two"]).await.ok();
    cli(&admin, &["resources", "block", "up:y://{id}", "--template"]).await.ok();
    let report = cli(&tenant.auditor().await, &["doctor"]).await.ok().out;
    let told: Vec<&str> = report.lines().filter(|line| line.contains("'up'")).collect();
    assert_eq!(
        told,
        [
            "WARN  server   'up' has 1 prompt that waits for approval: mcpproxy prompts list up",
            "WARN  server   'up' has 1 resource that waits for approval: mcpproxy resources list up",
            "ok    server   'up' has 1 resource that is blocked: mcpproxy resources list up",
            "ok    server   'up' has 1 template that is blocked: mcpproxy resources list up",
        ]
    );
    // what keeps the whole server from agents comes before what waits in it
    cli(&admin, &["upstream", "quarantine", "up"]).await.ok();
    let report = cli(&admin, &["doctor"]).await.ok().out;
    assert_eq!(report.lines().filter(|line| line.contains("'up'")).count(), 1, "{report}");
}

#[tokio::test]
async fn the_status_says_what_holds_for_the_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let change = json!({"allowed_tools": ["up:*", "secret-project:*"], "rate_limit": 500});
    tenant.platform.patch("/api/v1/settings", &change).await.expect(200);
    let agent = tenant.agent_with(json!({"max_operation": "read", "allowed_tools": ["*:list_*"]})).await;
    let shown = cli(&agent, &["status"]).await.ok().out;
    for want in [
        "max_operation:             read\n",
        "allowed_tools:             [\"*:list_*\"]\n",
        "allowed_tools_from:        key\n",
        "rate_limit:                500\n",
    ] {
        assert!(shown.contains(want), "{shown}");
    }
    // what the tenant allows besides is not this key's to know
    assert!(!shown.contains("secret-project"), "{shown}");
    let of_tenant = status(&tenant.agent().await).await;
    assert_eq!(
        (&of_tenant["settings"]["max_operation"], list(&of_tenant)),
        (&json!("destructive"), (None, Some("tenant")))
    );
    let platform = status(&stage.platform()).await;
    assert_eq!((&platform["suspended"], list(&platform)), (&json!(false), (None, None)));
    cli(&stage.platform(), &["tenant", "suspend", "acme"]).await.ok();
    assert_eq!(cli(&tenant.platform, &["status", "-o", "json"]).await.ok().json()["suspended"], true);
    cli(&agent, &["status"]).await.failed(5, "this tenant is suspended");
}

/// A deployment's list is one for all tenants, and may name servers that only one of them has.
#[tokio::test]
async fn the_status_tells_no_list_but_the_keys_own() {
    let stage = Stage::with(&[("MCPPROXY__DEFAULTS__ALLOWED_TOOLS", "up:*,payroll:*")]).await;
    let tenant = stage.tenant("acme").await;
    assert_eq!(list(&status(&tenant.agent().await).await), (None, Some("deployment")));
    let narrow = tenant.agent_with(json!({"allowed_tools": ["up:get_*"]})).await;
    assert_eq!(list(&status(&narrow).await), (Some(json!(["up:get_*"])), Some("key")));
    let open = tenant.agent_with(json!({"allowed_tools": ["*"]})).await;
    assert_eq!(list(&status(&open).await), (None, Some("deployment")));
    // what has no tools has no use for lists
    assert_eq!(list(&status(&tenant.approver().await).await), (None, None));
    tenant.platform.patch("/api/v1/settings", &json!({"allowed_tools": ["up:*"]})).await.expect(200);
    assert_eq!(list(&status(&tenant.agent().await).await), (None, Some("tenant")));
    let doctor = cli(&tenant.agent().await, &["doctor"]).await.ok().out;
    assert!(doctor.contains("ok    key      has only the tools of its tenant's allowed_tools; "), "{doctor}");
}

async fn status(api: &Api) -> Value {
    cli(api, &["status", "-o", "json"]).await.ok().json()
}

/// The list that a status shows, and whose it is said to be.
fn list(status: &Value) -> (Option<Value>, Option<&str>) {
    let settings = &status["settings"];
    assert!(
        settings.get("allowed_tools").is_some() && settings.get("allowed_tools_from").is_some(),
        "{status}"
    );
    (
        Some(settings["allowed_tools"].clone()).filter(|list| !list.is_null()),
        settings["allowed_tools_from"].as_str(),
    )
}

#[tokio::test]
async fn tools_that_nobody_gets_are_listed_with_the_reason() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    assert_eq!(cli(&admin, &["tools", "list", "up"]).await.ok().err, "");
    cli(&admin, &["upstream", "disable", "up"]).await.ok();
    let listed = cli(&admin, &["tools", "list", "up"]).await.ok();
    assert!(listed.out.contains("look") && listed.err.contains("mcpproxy upstream enable up"), "{listed:?}");
}

#[tokio::test]
async fn prompts_and_resources_that_wait() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(Vec::new()).await;
    let offers = |version: &str| Offers {
        prompts: Some(vec![json!({"name": "sum", "description": version}).to_string()]),
        resources: Some(vec![json!({"uri": "x://a", "name": version}).to_string()]),
        templates: vec![json!({"uriTemplate": "x://{id}", "name": version}).to_string()],
        ..Offers::default()
    };
    upstream.set_offers(offers("before"));
    tenant.add("up", &upstream).await;
    let admin = tenant.admin().await;
    upstream.set_offers(offers("after"));
    cli(&admin, &["upstream", "refresh", "up"]).await.ok();
    let states = async |group: &str| {
        let rows = cli(&admin, &[group, "list", "up"]).await.ok().rows();
        rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(states("prompts").await, ["sum changed"]);
    assert_eq!(states("resources").await, ["resource x://a changed", "template x://{id} changed"]);
    for (group, name, template) in [
        ("prompts", "up:sum", None),
        ("resources", "up:x://a", None),
        ("resources", "up:x://{id}", Some("--template")),
    ] {
        let run = async |verb: &str, more: &[&str]| {
            let all: Vec<&str> =
                [group, verb, name].into_iter().chain(template).chain(more.iter().copied()).collect();
            cli(&admin, &all).await
        };
        let diff = run("diff", &[]).await.ok().out;
        assert!(diff.contains("- \"before\"") && diff.contains("+ \"after\""), "{diff}");
        let shown = run("show", &["-o", "json"]).await.ok().json();
        assert_eq!(shown["state"], "changed");
        let approved_before = shown["approved_pin"].as_str().unwrap();
        run("approve", &["--pin", approved_before]).await.failed(3, "conflict");
        let done = run("approve", &["--pin", shown["pin"].as_str().unwrap(), "-o", "json"]).await.ok().json();
        assert_eq!(done["state"], "approved");
        assert_eq!(run("block", &["-o", "json"]).await.ok().json()["state"], "blocked");
        assert_eq!(run("unblock", &["-o", "json"]).await.ok().json()["state"], "approved");
    }
    cli(&admin, &["prompts", "show", "up:none"]).await.failed(3, "does not offer none");
    cli(&admin, &["resources", "block", "x://a"]).await.failed(3, "not_found");
    cli(&admin, &["resources", "block", "nothing"]).await.failed(2, "SERVER:URI");
}
