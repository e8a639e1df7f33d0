//! Which gateway the command line talks to, and what it says when there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Stage, cli, cli_with};

#[tokio::test]
async fn flags_win_over_the_environment_and_that_over_profiles() {
    let stage = Stage::start().await;
    let (one, two) = (stage.tenant("one").await.agent().await, stage.tenant("two").await.agent().await);
    let (url, key_one, key_two) =
        (&*one.base_url(), one.key.as_deref().unwrap(), two.key.as_deref().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.toml");
    fs::write(&path, format!("[default]\nurl = \"{url}\"\napi_key = \"{key_one}\"\n[two]\nurl = \"{url}\"\napi_key = \"{key_two}\"\n"))
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = path.to_str().unwrap();
    let at = [("MCPPROXY_PROFILES", file)];
    let whose = |run: crate::support::Run| run.ok().json()["tenant"].as_str().unwrap().to_owned();
    let status = ["status", "-o", "json"];
    assert_eq!(whose(cli_with(&at, &status).await), "one");
    assert_eq!(whose(cli_with(&at, &["status", "-o", "json", "--profile", "two"]).await), "two");
    assert_eq!(whose(cli_with(&[at[0], ("MCPPROXY_API_KEY", key_two)], &status).await), "two");
    let flags = ["status", "-o", "json", "--api-key", key_one];
    assert_eq!(whose(cli_with(&[at[0], ("MCPPROXY_API_KEY", key_two)], &flags).await), "one");
    // below the home directory, where nobody has to name it
    fs::create_dir_all(folder.path().join(".config/mcpproxy")).unwrap();
    fs::copy(&path, folder.path().join(".config/mcpproxy/profiles.toml")).unwrap();
    assert_eq!(whose(cli_with(&[("HOME", folder.path().to_str().unwrap())], &status).await), "one");

    cli_with(&at, &["status", "--profile", "three"]).await.failed(2, "there are: default, two");
    let flag = ["status", "-o", "json", "--profile", "two", "--api-key", key_one];
    assert!(cli_with(&at, &flag).await.ok().err.contains("not that of the profile two"));
    let ide = format!("{url}/mcp");
    assert_eq!(whose(cli_with(&[at[0], ("MCPPROXY_URL", &ide)], &status).await), "one");
    cli_with(&[("MCPPROXY_PROFILES", "/no/such/file")], &["status"]).await.failed(2, "No such file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(cli_with(&at, &status).await.ok().err.contains("chmod 600"));
    fs::write(&path, format!("[default\napi_key = \"{key_one}\"\n")).unwrap();
    let broken = cli_with(&at, &["status"]).await;
    broken.failed(2, "cannot be read as profiles");
    assert!(!broken.err.contains(key_one), "{broken:?}");
}

#[tokio::test]
async fn a_gateway_that_is_not_there() {
    // a port that nobody listens on: one that was just free
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    cli_with(&[("MCPPROXY_URL", &url)], &["status"]).await.failed(6, "is the gateway running");
    for (url, says) in [
        ("nonsense", "http://127.0.0.1:8080"),
        ("ftp://127.0.0.1", "http:// or https://"),
        ("http://user:pw@127.0.0.1", "--api-key"),
    ] {
        let run = cli_with(&[("MCPPROXY_URL", url)], &["status"]).await;
        run.failed(2, says);
        assert!(!run.err.contains("pw@"), "{run:?}");
    }
    let completions = cli_with(&[], &["completions", "bash"]).await.ok().out;
    assert!(completions.contains("tool-destructive") && completions.contains("complete -F"));
    cli_with(&[], &["completions", "basic"]).await.failed(2, "possible values");
    assert!(cli_with(&[], &["--help"]).await.ok().out.contains("activity"));
}

#[tokio::test]
async fn a_key_acts_in_its_own_tenant_and_no_other() {
    let stage = Stage::start().await;
    let (tenant, other) = (stage.tenant("one").await, stage.tenant("two").await);
    let admin = tenant.admin().await;
    let key = admin.key.as_deref().unwrap();
    let at = [("MCPPROXY_URL", &*admin.base_url()), ("MCPPROXY_API_KEY", key), ("MCPPROXY_TENANT", "two")];
    let add = ["key", "add", "--role", "agent"];
    cli_with(&at, &add).await.failed(2, "this key is of the tenant one, not two");
    for tenant in [&tenant, &other] {
        let keys = tenant.platform.items("/api/v1/keys").await;
        assert!(keys.iter().all(|key| key["role"] != "agent"), "{keys:?}");
    }
    cli_with(&[at[0], at[1], ("MCPPROXY_TENANT", "one")], &add).await.ok();
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let auditor = tenant.auditor().await;
    let url = auditor.base_url();
    let at = |key: &'static str| [("MCPPROXY_URL", url.clone()), ("MCPPROXY_API_KEY", key.to_owned())];
    for (key, says) in
        [("", "none was sent"), ("mcpk_wrong", "unknown, revoked"), ("${MCPPROXY_API_KEY}", "has a $ in it")]
    {
        let at = at(key);
        let env: Vec<(&str, &str)> = at.iter().map(|(name, value)| (*name, &**value)).collect();
        cli_with(&env, &["status"]).await.failed(5, says);
        // only what was typed is in the usage, whatever the environment says
        let usage = cli_with(&env, &["tools", "search"]).await;
        usage.failed(2, "Usage: mcpproxy tools search <QUERY>...\n");
    }
    cli(&auditor, &["key", "list"]).await.failed(5, "it takes one of admin, platform");
    cli(&auditor, &["upstream", "add", "up", "--url", &url]).await.failed(2, "upstream add up URL");
    let program = ["upstream", "add", "fs", "--", "npx", "-y", "server-filesystem"];
    let refused = cli(&auditor, &program).await;
    refused
        .failed(2, "[stdio.commands.fs]\nargv = [\"npx\",\"-y\",\"server-filesystem\"]\nenv = { HOME = \"");
    assert!(refused.err.contains("\ntenants = [\"acme\"]\n"), "{refused:?}");
    let platform = stage.platform();
    for (caller, tenant) in [(platform.as_tenant("acme"), "acme"), (platform, "TENANT")] {
        let refused = cli(&caller, &program).await;
        refused.failed(2, &format!("\ntenants = [\"{tenant}\"]\n"));
    }
    let unreachable = [("MCPPROXY_URL", "http://127.0.0.1:1"), ("MCPPROXY_API_KEY", "mcpk_x")];
    cli_with(&unreachable, &program).await.failed(2, "tenants = [\"TENANT\"]");
    cli(&auditor, &["tools", "list", "up", "--state", "modified"]).await.failed(2, "possible values");
    cli(&auditor, &["call", "call_tool_read", "a:b", "--args", "{title:1}"])
        .await
        .failed(2, "needs an object");
    let platform = cli(&stage.platform(), &["activity", "list"]).await.ok();
    assert!(platform.err.contains("the platform's own records"), "{platform:?}");
    let platform = cli(&stage.platform(), &["doctor"]).await.ok();
    assert!(platform.out.contains("WARN  servers  not looked at: name a tenant"), "{platform:?}");
}
