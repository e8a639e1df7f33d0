//! What is shown and what is read on are the whole, byte for byte.

use serde_json::{Value, json};

use super::{Scene, body, key_of, page, read, result_of};
use crate::support::{Api, Mcp};

/// 56 characters, each spelled in one of the ways in which it can be.
const ODD: &str =
    r#"0123 \u00e9é\/\"\\\n\u0000\u2028 \ud83d\ude00😀 \ud800 \udc00x 9007199254740993 e\u0301 \u202e"#;

async fn read_on(api: &Api, key: &str, from: usize, limit: Option<usize>) -> String {
    let (mut text, mut next) = (String::new(), Some(from));
    while let Some(offset) = next {
        let outcome = read(api, &json!({"key": key, "offset": offset, "limit": limit})).await;
        let page = page(&outcome);
        let part = body(page.text.unwrap());
        let shown = format!(r#""content":[{{"type":"text","text":"{part}"}},"#);
        assert!(outcome.raw().contains(&shown), "as a text it is the same: {outcome:?}");
        text.push_str(part);
        next = page.next_offset;
    }
    text
}

#[tokio::test]
async fn characters_however_they_are_spelled() {
    let whole = ODD.repeat(10);
    let scene = Scene::with(&[], 100, &result_of(&whole)).await;
    for client in [Mcp::session(&scene.agent).await, Mcp::modern(&scene.agent)] {
        let outcome = client.run("read", "up:get", &json!({})).await;
        let (_, rest) = outcome.raw().split_once(r#""content":[{"type":"text","text":""#).unwrap();
        let (shown, note) = rest.split_once(r"\n\n[Cut by mcpproxy: 100 of ").unwrap();
        // lone surrogates are no text to a JSON reader: the raw answer is what counts
        let meta = outcome.raw().split_once(r#""mcpproxy/truncated":"#).unwrap().1;
        let key = meta.split_once(r#""key":""#).unwrap().1.split('"').next().unwrap();
        assert!(
            note.contains(&format!(r#"read_cache {{\"key\": \"{key}\", \"offset\": 100, \"limit\": 100}}"#)),
            "{note}"
        );
        for limit in [None, Some(7), Some(5000)] {
            assert_eq!(format!("{shown}{}", read_on(&scene.agent, key, 100, limit).await), whole);
        }
        assert_eq!(read_on(&scene.agent, key, 0, None).await, whole);
        let beyond = read(&scene.agent, &json!({"key": key, "offset": 1_000_000})).await;
        assert_eq!((body(page(&beyond).text.unwrap()), page(&beyond).next_offset), ("", None));
    }
}

#[tokio::test]
async fn records_as_they_are() {
    let record = |n: usize| format!(r#"{{"n": {n}.50,"big":18446744073709551617,"é":"\u00e9\/ {n}"}}"#);
    let records: Vec<String> = (0..120).map(record).collect();
    let giant = json!({"text": "ü".repeat(3000)}).to_string();
    let all = [&records[..60], std::slice::from_ref(&giant), &records[60..]].concat();
    let whole = format!(r#"{{"more":false, "items":[ {} ]}}"#, all.join(" ,\n"));
    let raw = json!({"content": [{"type": "text", "text": whole}]}).to_string();
    let scene = Scene::with(&[], 2000, &raw).await;
    let result = scene.get().await.ok();
    let meta = &result["_meta"]["mcpproxy/truncated"];
    let characters = whole.chars().count();
    assert_eq!(
        (&meta["records"], &meta["total_characters"], &meta["shown"]),
        (&json!(121), &json!(characters), &json!(2000))
    );
    let key = key_of(&result);
    let (mut seen, mut next) = (Vec::new(), Some(0));
    while let Some(offset) = next {
        let outcome = read(&scene.agent, &json!({"key": key, "offset": offset})).await;
        let result = outcome.ok();
        let said = &result["structuredContent"];
        assert_eq!(
            serde_json::from_str::<Value>(result["content"][0]["text"].as_str().unwrap()).unwrap(),
            *said
        );
        assert_eq!(
            (&said["total"], &said["meta"]["path"], &said["meta"]["tool"]),
            (&json!(121), &json!("/items"), &json!("get"))
        );
        // on every page: whoever goes on where the cut text ended has not seen all of it
        assert_eq!(said["meta"]["around"], json!({"more": false, "items": []}), "{said}");
        let page = page(&outcome);
        assert!(page.records.len() <= 50 && page.total == 121);
        let characters: usize = page.records.iter().map(|record| record.get().chars().count()).sum();
        assert!(characters <= 2000, "{characters}");
        seen.extend(page.records.iter().map(|record| record.get().to_owned()));
        if let Some(own) = said["large_record"]["key"].as_str() {
            let literal = read_on(&scene.agent, own, 0, None).await;
            seen.push(serde_json::from_str(&format!("\"{literal}\"")).unwrap());
        }
        next = page.next_offset;
    }
    assert_eq!(seen, all);
    let some = read(&scene.agent, &json!({"key": key, "offset": 3, "limit": 2})).await;
    let shown: Vec<&str> = page(&some).records.iter().map(|record| record.get()).collect();
    assert_eq!((shown, page(&some).next_offset), (vec![records[3].as_str(), &records[4]], Some(5)));
}

#[tokio::test]
async fn what_repeats_the_text_is_left_out_and_kept_too() {
    let raw = format!(
        r#"{{"content":[{{"type":"text","text":"{0}"}},{{"type":"image","data":"{0}","mimeType":"image/png"}},{{"type":"text","text":"short"}},{{"type":"text","text":"{0}"}}],"structuredContent":{{"result":"{0}","n":1e400}},"isError":true}}"#,
        "0123456789".repeat(20)
    );
    let scene = Scene::with(&[], 150, &raw).await;
    let result = scene.get().await.result();
    assert_eq!((&result["isError"], result.get("structuredContent")), (&json!(true), None), "{result}");
    assert_eq!(result["content"][1]["data"], "0123456789".repeat(20));
    assert_eq!(result["content"][2]["text"], "short");
    let meta = &result["_meta"]["mcpproxy/truncated"];
    let parts = [meta, &meta["also"][0], &meta["also"][1]];
    let names: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(names, ["content[0].text", "content[3].text", "structuredContent"]);
    let last = parts[2]["key"].as_str().unwrap();
    assert!(result["content"][3]["text"].as_str().unwrap().contains(last), "{result}");
    assert_eq!(
        read_on(&scene.agent, last, 0, None).await,
        format!(r#"{{\"result\":\"{}\",\"n\":1e400}}"#, "0123456789".repeat(20))
    );
    assert_eq!(
        read_on(&scene.agent, parts[1]["key"].as_str().unwrap(), 150, None).await,
        "0123456789".repeat(5)
    );
}

#[tokio::test]
async fn the_limit_is_the_tenants_or_the_deployments() {
    let scene = Scene::with(&[], 0, &result_of(&"x".repeat(20_001))).await;
    let settings = "/api/v1/settings";
    let is_cut = async || scene.get().await.ok()["_meta"]["mcpproxy/truncated"].is_object();
    assert!(!is_cut().await, "0 is off");
    let shown = scene.tenant.platform.patch(settings, &json!({"response_limit": null})).await.expect(200);
    assert_eq!(shown["response_limit"], json!({"value": 20_000, "origin": "deployment"}));
    assert!(is_cut().await, "the default");
    scene.tenant.platform.patch(settings, &json!({"response_limit": 20_001})).await.expect(200);
    assert!(!is_cut().await, "it is not longer");
    scene.tenant.platform.patch(settings, &json!({"response_limit": 10})).await.expect(200);
    let body = json!({"tool_variant": "call_tool_read", "name": "up:get"});
    let whole = scene.agent.post("/api/v1/tools/call", &body).await;
    assert_eq!((whole.status, whole.text), (200, result_of(&"x".repeat(20_001))), "REST gives it whole");
    assert_eq!(scene.stage.database.count("select count(*) from response_cache").await, 1);
}

#[tokio::test]
async fn arguments_are_strict_and_every_read_is_on_record() {
    let scene = Scene::with(&[], 100, &result_of(&"x".repeat(300))).await;
    let key = scene.key().await;
    for bad in [
        json!({}),
        json!({"key": 7}),
        json!({"key": key, "page": 2}),
        json!({"key": key, "limit": 0}),
        json!({"key": key, "offset": -1}),
    ] {
        assert_eq!(read(&scene.agent, &bad).await.code(), "invalid_request", "{bad}");
    }
    assert_eq!(read(&scene.agent, &json!({"key": key, "offset": 100})).await.code(), "ok");
    assert_eq!(read(&scene.agent, &json!({"key": "nothing"})).await.code(), "not_found");
    let call = scene.tenant.records("type=tool_call", 1).await.remove(0);
    assert!(
        call["response"].as_str().unwrap().contains(&"x".repeat(300)),
        "the record is of the whole: {call}"
    );
    let records = scene.tenant.records("type=cache_read", 7).await;
    let facts = |status: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["status"] == status).collect()
    };
    assert_eq!((facts("success").len(), facts("blocked").len()), (1, 6));
    let read = facts("success")[0];
    assert_eq!(
        (&read["server"], &read["tool"], &read["parent_id"], &read["source"]),
        (&json!("up"), &json!("get"), &call["id"], &json!("mcp"))
    );
    assert_eq!(read["response"], "characters from 100 of 300");
    let log = scene.stage.gateway.log() + &json!(records).to_string();
    assert!(
        !json!(facts("success")).to_string().contains(&key) && !scene.stage.gateway.log().contains(&key),
        "{log}"
    );
}
