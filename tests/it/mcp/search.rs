//! `retrieve_tools`.

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, Tenant, Tool, Upstream, masked, upstream};

async fn many() -> (Stage, Tenant, Vec<Upstream>) {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let described = |name: &str, text: &str, annotations: &str| {
        Tool::raw(
            name,
            &format!(
                r#"{{"name":"{name}","description":"{text}","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"Where the parchment lies"}}}}}}{annotations}}}"#
            ),
        )
    };
    let mut files: Vec<Tool> = (0..30)
        .map(|n| Tool::annotated(&format!("list_widgets_{n:02}"), r#"{"readOnlyHint":true}"#))
        .collect();
    files.push(described("readTextFile", "Reads a text file", r#","annotations":{"readOnlyHint":true}"#));
    files.push(described(
        "delete_branches",
        "Removes branches of a repository",
        r#","annotations":{"destructiveHint":true}"#,
    ));
    let files = Upstream::handshake(files).await;
    let odd = Upstream::handshake(vec![
        Tool::raw("strange", r#"{"name":"strange","inputSchema":{"type":"object"},"annotations":"none"}"#),
        Tool::raw("bare", r#"{"name":"bare"}"#),
        Tool::new("widget_plain"),
    ])
    .await;
    tenant.add("files", &files).await;
    tenant.add("odd", &odd).await;
    (stage, tenant, vec![files, odd])
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_shape_of_an_answer() {
    let (_stage, tenant, _upstreams) = many().await;
    let mut answers = Vec::new();
    for client in [Mcp::session(&tenant.agent().await).await, Mcp::modern(&tenant.agent().await)] {
        let result = client.call("retrieve_tools", &json!({"query": "text file"})).await.ok();
        let answer = &result["structuredContent"];
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(&text, answer, "text and structured content differ");
        let first = &answer["tools"][0];
        assert!(first["score"].as_f64().is_some_and(|score| score > 0.0), "{first}");
        let mut shown = masked(answer, &["score"]);
        shown["tools"].as_array_mut().unwrap().truncate(1);
        answers.push(shown);
    }
    answers.dedup();
    insta::assert_json_snapshot!(answers, @r#"
    [
      {
        "query": "text file",
        "ranking": "bm25",
        "tools": [
          {
            "annotations": {
              "readOnlyHint": true
            },
            "call_with": "call_tool_read",
            "description": "Reads a text file",
            "inputSchema": {
              "properties": {
                "path": {
                  "description": "Where the parchment lies",
                  "type": "string"
                }
              },
              "type": "object"
            },
            "name": "files:readTextFile",
            "score": "[number]",
            "server": "files"
          }
        ],
        "total": 32,
        "usage_instructions": "Call a tool with the variant named in its call_with: call_tool_read for queries that change nothing, call_tool_write for creating or updating, call_tool_destructive for deleting or anything that cannot be undone. Pass the tool's name as name and its arguments as args (an object) or args_json (a string). The operation type is inferred from the variant; intent_data_sensitivity and intent_reason are optional."
      }
    ]
    "#);
}

#[tokio::test]
async fn a_compact_answer_is_a_signature_and_a_sentence() {
    let (_stage, tenant, _upstreams) = many().await;
    let agent = tenant.agent().await;
    let query = json!({"query": "text file", "limit": 1, "detail": "compact"});
    let answer = Mcp::modern(&agent).search(&query).await;
    let score = &answer["tools"][0]["score"];
    insta::assert_json_snapshot!(masked(&answer, &["score"]), @r#"
    {
      "query": "text file",
      "ranking": "bm25",
      "tools": [
        {
          "annotations": {
            "readOnlyHint": true
          },
          "call_with": "call_tool_read",
          "name": "files:readTextFile",
          "score": "[number]",
          "signature": "readTextFile(path?: string)",
          "summary": "Reads a text file"
        }
      ],
      "total": 32,
      "usage_instructions": "Call a tool with the variant named in its call_with: call_tool_read for queries that change nothing, call_tool_write for creating or updating, call_tool_destructive for deleting or anything that cannot be undone. Pass the tool's name as name and its arguments as args (an object) or args_json (a string). The operation type is inferred from the variant; intent_data_sensitivity and intent_reason are optional. A ? marks optional parameters; for a tool's full description and schema, search for its name with detail full."
    }
    "#);
    let rest = agent.get("/api/v1/tools?query=text+file&limit=1&detail=compact").await.expect(200);
    assert_eq!(rest, answer);
    let full = agent.get("/api/v1/tools?query=text+file&limit=1&detail=full").await.expect(200);
    assert_eq!(full["tools"][0]["score"], *score, "what is said does not change the ranking");
    agent.get("/api/v1/tools?query=x&detail=short").await.refused(400, "invalid_request");
    let refused = Mcp::modern(&agent).call("retrieve_tools", &json!({"query": "x", "detail": "short"})).await;
    assert_eq!(refused.answer.json()["result"]["isError"], true, "{refused:?}");
}

#[tokio::test]
async fn a_tool_is_found_by_what_it_means() {
    let (_stage, tenant, _upstreams) = many().await;
    let answer = Mcp::bare(&tenant.agent().await).search(&json!({"query": "open a document"})).await;
    assert_eq!(names(&answer).first(), Some(&"files:readTextFile"), "{answer}");
}

#[tokio::test]
async fn annotations_are_always_an_object() {
    let (_stage, tenant, _upstreams) = many().await;
    let client = Mcp::bare(&tenant.agent().await);
    for (query, name) in [("strange", "odd:strange"), ("bare", "odd:bare"), ("plain", "odd:widget_plain")] {
        let answer = client.search(&json!({ "query": query })).await;
        let tool = answer["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name);
        let tool = tool.unwrap_or_else(|| panic!("{name} is not found: {answer}"));
        assert_eq!(tool["annotations"], json!({}), "{tool}");
        assert!(tool["inputSchema"].is_object() && tool["description"].is_string(), "{tool}");
        assert_eq!(tool["call_with"], "call_tool_write");
    }
}

#[tokio::test]
async fn filters_come_before_the_limit() {
    let (_stage, tenant, _upstreams) = many().await;
    let client = Mcp::bare(&tenant.agent().await);
    let plain = client.search(&json!({"query": "widgets"})).await;
    assert_eq!((names(&plain).len(), &plain["total"]), (15, &json!(31)), "default limit");
    let few = client.search(&json!({"query": "widgets", "limit": 2})).await;
    assert_eq!((names(&few).len(), &few["total"]), (2, &json!(31)));
    let one = client.search(&json!({"query": "widgets", "limit": 1, "server": "odd"})).await;
    assert_eq!((names(&one), &one["total"]), (vec!["odd:widget_plain"], &json!(1)));
    let reads = client.search(&json!({"query": "widgets", "limit": 100, "read_only_only": true})).await;
    assert_eq!((names(&reads).len(), &reads["total"]), (30, &json!(30)));
    let all = client.search(&json!({"query": "branches plain", "limit": 100})).await;
    assert!(names(&all).contains(&"files:delete_branches"), "{all}");
    let mild =
        client.search(&json!({"query": "branches plain", "limit": 100, "exclude_destructive": true})).await;
    assert_eq!(names(&mild), ["odd:widget_plain"]);
    let nowhere = client.search(&json!({"query": "widgets", "server": "no-such"})).await;
    assert_eq!((&nowhere["tools"], &nowhere["total"]), (&json!([]), &json!(0)));
    let nothing = client.search(&json!({"query": "zzzzqqqq"})).await;
    assert_eq!((&nothing["tools"], &nothing["total"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn words_are_found_in_every_spelling() {
    let (_stage, tenant, _upstreams) = many().await;
    let client = Mcp::bare(&tenant.agent().await);
    let cases = [
        ("read text file", "files:readTextFile"),
        ("readtextfile", "files:readTextFile"),
        ("files reading", "files:readTextFile"),
        ("parchment", "files:readTextFile"),
        ("delete branch", "files:delete_branches"),
        ("deleteBranches", "files:delete_branches"),
    ];
    for (query, expected) in cases {
        let answer = client.search(&json!({"query": query, "limit": 3})).await;
        assert!(names(&answer).contains(&expected), "{query}: {:?}", names(&answer));
    }
}

#[tokio::test]
async fn bad_parameters_are_errors() {
    let (_stage, tenant, _upstreams) = many().await;
    let agent = tenant.agent().await;
    let client = Mcp::bare(&agent);
    let cases = [
        json!({}),
        json!({"query": 7}),
        json!({"query": "x", "limit": 0}),
        json!({"query": "x", "limit": 101}),
        json!({"query": "x", "limit": -1}),
        json!({"query": "x", "limit": "3"}),
        json!({"query": "x", "limit": 1.5}),
        json!({"query": "x", "read_only_only": "yes"}),
    ];
    for arguments in cases {
        let outcome = client.call("retrieve_tools", &arguments).await;
        let body = outcome.answer.json();
        let is_error = body["error"].is_object() || body["result"]["isError"] == true;
        assert!(is_error, "{arguments}: {outcome:?}");
    }
    // too long is no fault: the beginning is searched for, and the answer says so
    let long = format!("widgets {}", "é".repeat(4000));
    let found = client.search(&json!({"query": long, "limit": 1})).await;
    let said = found["usage_instructions"].as_str().unwrap();
    assert!(found["total"] == 31 && found["query"].as_str().unwrap().len() == 4096, "{found}");
    assert!(
        said.ends_with("Only the first 4096 bytes of the query were searched for: a sentence is enough."),
        "{said}"
    );
    for limit in [1, 100] {
        client.call("retrieve_tools", &json!({"query": "x", "limit": limit})).await.ok();
    }
    for query in ["query=x&limit=0", "query=x&limit=101", "limit=3", "query=x&nosuch=1", "query=x&query=y"] {
        agent.get(&format!("/api/v1/tools?{query}")).await.refused(400, "invalid_request");
    }
    let rest = agent.get("/api/v1/tools?query=widgets&limit=2").await.expect(200);
    assert_eq!((names(&rest).len(), &rest["total"]), (2, &json!(31)));
}

#[tokio::test]
async fn the_description_names_the_servers_this_key_can_see() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    for name in ["aaa-visible", "bbb-hidden", "ccc-disabled", "ddd-quarantined"] {
        tenant.add(name, &upstream).await;
    }
    tenant.platform.post("/api/v1/servers/ccc-disabled/disable", &json!({})).await.expect(200);
    tenant.platform.post("/api/v1/servers/ddd-quarantined/quarantine", &json!({})).await.expect(200);
    let client =
        Mcp::bare(&tenant.agent_with(json!({"allowed_tools": ["aaa-visible:*", "c*:*", "d*:*"]})).await);
    let tools = client.tools().await;
    let description =
        tools.iter().find(|tool| tool["name"] == "retrieve_tools").unwrap()["description"].clone();
    let description = description.as_str().unwrap();
    assert!(description.contains("aaa-visible"), "{description}");
    for hidden in ["bbb-hidden", "ccc-disabled", "ddd-quarantined"] {
        assert!(!description.contains(hidden), "{description}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_one_matches_nothing_and_stays_out_of_the_log() {
    let (_stage, tenant, _upstreams) = many().await;
    let client = Mcp::bare(&tenant.agent().await);
    let long = "s".repeat(100_000);
    let odd = [long.as_str(), "FILES", "files ", "a--b", "files:readTextFile", "*", "", "a\u{0}b"];
    for server in odd {
        let found = client.search(&json!({"query": "widgets", "server": server})).await;
        let shown: String = server.chars().take(20).collect();
        assert_eq!((&found["tools"], &found["total"]), (&json!([]), &json!(0)), "{shown}");
    }
    tenant.platform.get("/api/v1/tools?query=widgets&server=NOT%20A%20NAME").await.expect(200);
    for record in tenant.records("type=search", odd.len() + 1).await {
        assert_eq!(record["server"], Value::Null, "{record}");
        assert_eq!((&record["status"], &record["arguments"]), (&json!("success"), &json!("widgets")));
        assert!(record.to_string().len() < 10_000, "{}", record.to_string().len());
    }
    client.search(&json!({"query": "widgets", "server": "files"})).await;
    tenant.records("type=search&server=files", 1).await;
}

#[tokio::test]
async fn a_disconnected_server_is_named_but_none_of_its_tools_is_found() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut away = Upstream::handshake(vec![Tool::reads("widget_away")]).await;
    let here = Upstream::handshake(vec![Tool::reads("widget_here")]).await;
    tenant.add("away", &away).await;
    tenant.add("here", &here).await;
    let client = Mcp::bare(&tenant.agent().await);
    let refresh = async |connection: &str| {
        let server = tenant.platform.post("/api/v1/servers/away/refresh", &json!({})).await.expect(200);
        assert_eq!(server["connection"] == "connected", connection == "connected", "{server}");
    };
    let query = json!({"query": "widget"});
    let (list, found) = (client.tools().await, client.search(&query).await);
    assert_eq!(found["total"], 2, "{found}");
    client.run("read", "away:widget_away", &json!({})).await.ok();

    away.go_down().await;
    refresh("disconnected").await;
    let description =
        list.iter().find(|tool| tool["name"] == "retrieve_tools").unwrap()["description"].clone();
    assert!(description.as_str().unwrap().contains("away"), "{description}");
    assert_eq!(client.tools().await, list, "a list says who is connected");
    let less = client.search(&query).await;
    assert_eq!((names(&less), &less["total"]), (vec!["here:widget_here"], &json!(1)));
    client.run("read", "away:widget_away", &json!({})).await.refused("server_unavailable");
    client.run("read", "here:widget_here", &json!({})).await.ok();
    let records = tenant.records("type=tool_call&server=away&status=rejected", 1).await;
    assert_eq!(records[0]["error_code"], "server_unavailable", "{}", records[0]);

    away.come_back().await;
    refresh("connected").await;
    assert_eq!(client.tools().await, list);
    assert_eq!(client.search(&query).await, found);
    client.run("read", "away:widget_away", &json!({})).await.ok();
    assert_eq!(away.counts().calls, 2);
}

#[tokio::test]
async fn a_search_says_which_servers_are_missing() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut away = Upstream::handshake(vec![Tool::writes("widget_away")]).await;
    let here = Upstream::handshake(vec![Tool::reads("widget_here")]).await;
    for (name, upstream) in [("away", &away), ("off", &away), ("shut", &away), ("here", &here)] {
        tenant.add(name, upstream).await;
    }
    let agent = tenant.agent().await;
    let meta = async |client: &Mcp, arguments: Value| {
        let result = client.call("retrieve_tools", &arguments).await.ok();
        let usage = result["structuredContent"]["usage_instructions"].as_str().unwrap().to_owned();
        let missing = result["_meta"]["mcpproxy/missing"].clone();
        let named = missing.as_array().is_some_and(|names| {
            names.iter().all(|name| usage.contains(&format!("({})", name.as_str().unwrap())))
        });
        assert_eq!(usage.contains("incomplete"), named, "{usage}");
        missing
    };
    let query = json!({"query": "widget"});
    let whole = Mcp::bare(&agent).search(&query).await;
    assert_eq!(meta(&Mcp::modern(&agent), query.clone()).await, Value::Null);

    away.go_down().await;
    tenant.platform.post("/api/v1/servers/off/disable", &json!({})).await.expect(200);
    tenant.platform.post("/api/v1/servers/shut/quarantine", &json!({})).await.expect(200);
    for name in ["away", "shut", "here"] {
        tenant.platform.post(&format!("/api/v1/servers/{name}/refresh"), &json!({})).await.expect(200);
    }
    let other = stage.tenant("other").await.agent().await;
    let narrow = tenant.agent_with(json!({"allowed_tools": ["here:*"]})).await;
    let reader = tenant.agent_with(json!({"max_operation": "read"})).await;
    for (whose, api, arguments, missing) in [
        ("all", &agent, query.clone(), json!(["away"])),
        ("of one server that is here", &agent, json!({"query": "widget", "server": "here"}), Value::Null),
        ("of the one that is missing", &agent, json!({"query": "widget", "server": "away"}), json!(["away"])),
        (
            "of tools it does not have",
            &agent,
            json!({"query": "widget", "read_only_only": true}),
            Value::Null,
        ),
        ("of tools it has", &agent, json!({"query": "widget", "exclude_destructive": true}), json!(["away"])),
        ("out of scope", &narrow, query.clone(), Value::Null),
        ("above the ceiling", &reader, query.clone(), Value::Null),
        ("another tenant", &other, query.clone(), Value::Null),
    ] {
        for client in [Mcp::bare(api), Mcp::modern(api)] {
            assert_eq!(meta(&client, arguments.clone()).await, missing, "{whose}");
        }
    }
    let modern = Mcp::modern(&agent).call("retrieve_tools", &query).await.ok();
    assert!(modern["_meta"]["io.modelcontextprotocol/serverInfo"].is_object(), "{modern}");
    let rest = agent.get("/api/v1/tools?query=widget").await;
    assert_eq!((rest.status, rest.header("x-mcpproxy-missing")), (200, "away"));
    let rest = narrow.get("/api/v1/tools?query=widget").await;
    assert!(rest.status == 200 && rest.headers.get("x-mcpproxy-missing").is_none(), "{rest:?}");

    away.come_back().await;
    tenant.platform.post("/api/v1/servers/off/enable", &json!({})).await.expect(200);
    tenant.platform.post("/api/v1/servers/shut/unquarantine", &json!({})).await.expect(200);
    tenant.platform.post("/api/v1/servers/away/refresh", &json!({})).await.expect(200);
    assert_eq!(Mcp::bare(&agent).search(&query).await, whole, "nothing is left of it");
}

#[tokio::test]
async fn an_answer_has_a_bound_in_bytes() {
    const LARGE_BYTES: usize = 200_000;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let large = |n: usize| {
        let text = format!("gadget {}", "x".repeat(LARGE_BYTES));
        let definition =
            format!(r#"{{"name":"t{n:02}","description":"{text}","inputSchema":{{"type":"object"}}}}"#);
        Tool::raw(&format!("t{n:02}"), &definition)
    };
    let upstream = Upstream::handshake((0..30).map(large).collect()).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let answer = client.search(&json!({"query": "gadget", "limit": 100})).await;
    assert_eq!((answer["total"].as_u64(), names(&answer).len()), (Some(30), 4 * 1024 * 1024 / LARGE_BYTES));
    let usage = answer["usage_instructions"].as_str().unwrap();
    assert!(usage.contains("10 more matches were left out"), "{usage}");
    let answer = client.search(&json!({"query": "gadget", "limit": 15})).await;
    assert_eq!(names(&answer).len(), 15);
    assert!(!answer["usage_instructions"].as_str().unwrap().contains("left out"));
}

/// Checks that callers of one scope get equal answers, to the last digit of a score. Tools that others see
/// have no effect.
#[tokio::test]
async fn scores_say_nothing_about_tools_out_of_scope() {
    let stage = Stage::start().await;
    let described = |name: &str, text: &str, hint: &str| {
        let definition = format!(
            r#"{{"name":"{name}","description":"{text}","inputSchema":{{"type":"object"}},"annotations":{{"{hint}":true}}}}"#
        );
        Tool::raw(name, &definition)
    };
    let seen = || {
        vec![
            described("open_letter", "Opens a letter of the archive", "readOnlyHint"),
            described("list_letters", "Lists letters, with quasars in the margin", "readOnlyHint"),
            described("count_pages", "Counts pages of a book", "readOnlyHint"),
        ]
    };
    let text = "Letters on parchment in the archive, with quasars and pages".repeat(3);
    let hidden = (0..20).map(|n| described(&format!("parchment_{n}"), &text, "readOnlyHint")).collect();
    let above = described("burn_letters", "Burns letters, quasars, parchment", "destructiveHint");
    let (few, more) = (stage.tenant("few").await, stage.tenant("more").await);
    let (plain, rich) = (Upstream::handshake(seen()).await, {
        let mut all = seen();
        all.push(above);
        Upstream::handshake(all).await
    });
    let secret = Upstream::handshake(hidden).await;
    few.add("files", &plain).await;
    more.add("files", &rich).await;
    more.add("secret", &secret).await;
    let scope = json!({"allowed_tools": ["files:*"], "max_operation": "read"});
    let (one, other) = (few.agent_with(scope.clone()).await, more.agent_with(scope).await);
    for query in
        ["letters", "parchment", "quasars of letters", "open_letter parchment pages", "archive of books"]
    {
        let arguments = json!({"query": query});
        let ask =
            async |api| Mcp::modern(api).call("retrieve_tools", &arguments).await.ok()["content"].clone();
        assert_eq!(ask(&one).await, ask(&other).await, "{query}");
    }
}

#[tokio::test]
async fn servers_whose_tools_nearly_match_are_named() {
    let (_stage, tenant, _upstreams) = many().await;
    let client = Mcp::session(&tenant.agent().await).await;
    let usage = async |query: &str, of: &Mcp| {
        let result = of.call("retrieve_tools", &json!({"query": query})).await.ok();
        result["structuredContent"]["usage_instructions"].as_str().unwrap().to_owned()
    };
    let hint = "nearly matched and are not listed: files; search for a server's name";
    let said = usage("brnaches", &client).await;
    assert!(said.contains(hint), "{said}");
    // a server that has a match needs no hint
    let said = usage("branches parchmnet", &client).await;
    assert!(!said.contains("nearly matched"), "{said}");
    // nobody hears of tools that their key does not have
    let other = tenant.agent_with(json!({"allowed_tools": ["odd:*"]})).await;
    let said = usage("brnaches", &Mcp::session(&other).await).await;
    assert!(!said.contains("files"), "{said}");
}
