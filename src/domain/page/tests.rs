use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn request(within: &[usize], offset: usize, limit: Option<usize>, characters_max: usize) -> PageRequest {
    PageRequest { within: within.to_vec(), offset, limit, characters_max }
}

fn body(text: &str) -> String {
    escaped(text)
}

fn records(page: &Page) -> (&str, &str, Option<&str>, Option<&LargeRecord>) {
    match &page.content {
        Content::Records { joined, path, around, large } => (joined, path, around.as_deref(), large.as_ref()),
        Content::Text(text) => panic!("a text: {text}"),
    }
}

#[test]
fn records_are_raw_and_what_is_around_them_comes_with_them() {
    let text = r#" {"n":3, "data":{"it/ems":[ {"a":1.50} ,[1e400],"é\u00e9" ]},"small":[1]}"#;
    let page = read(&body(text), &request(&[], 0, None, 200)).unwrap();
    let around = r#" {"n":3, "data":{"it/ems":[]},"small":[1]}"#;
    assert_eq!(records(&page), (r#"{"a":1.50},[1e400],"é\u00e9""#, "/data/it~1ems", Some(around), None));
    assert_eq!((page.total, page.limit, page.next_offset), (3, RECORDS_DEFAULT, None));
    let page = read(&body(text), &request(&[], 1, Some(1), 200)).unwrap();
    assert_eq!(records(&page), ("[1e400]", "/data/it~1ems", Some(around), None));
    assert_eq!((page.offset, page.next_offset), (1, Some(2)));
    let page = read(&body(text), &request(&[], 7, Some(5000), 200)).unwrap();
    assert_eq!((records(&page).0, page.limit, page.next_offset), ("", RECORDS_MAX, None));
    assert_eq!(page.total_characters, text.chars().count());
}

#[test]
fn what_is_not_mostly_records_is_a_text() {
    let prose = "x".repeat(60);
    for text in [
        "plain",
        "[1,2",
        "[1]",
        "{}",
        r#"{"a":{"b":1}}"#,
        &format!(r#"{{"prose":"{prose}","a":[1,2,3]}}"#),
        r#"{"a":{"b":{"c":{"d":{"e":[1,2,3]}}}}}"#,
    ] {
        let page = read(&body(text), &request(&[], 0, None, 100)).unwrap();
        assert_eq!(page.content, Content::Text(body(text)), "{text}");
    }
    let lone = r#"[1,2,"\ud800"]"#;
    let page = read(&body(lone), &request(&[], 0, None, 100)).unwrap();
    assert_eq!(records(&page).0, r#"1,2,"\ud800""#, "an escape within an escape is the record's own");
    let page = read(r"[1,2]\ud800", &request(&[], 0, None, 100)).unwrap();
    assert_eq!(page.content, Content::Text(r"[1,2]\ud800".to_owned()));
}

#[test]
fn a_record_that_is_too_large_is_read_by_itself() {
    let large = json!({"text": "é".repeat(100)}).to_string();
    let text = format!("[1,{large},3]");
    let page = read(&body(&text), &request(&[], 0, None, 50)).unwrap();
    let (joined, _, _, found) = records(&page);
    assert_eq!((joined, page.next_offset), ("1", Some(2)));
    let found = found.unwrap();
    assert_eq!((found.index, found.characters), (1, 111));
    let mut whole = String::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = read(&body(&text), &request(&[1], offset, None, 50)).unwrap();
        let Content::Text(part) = page.content else { panic!("records") };
        whole.push_str(&part);
        next = page.next_offset;
    }
    assert_eq!(whole, body(&large));
    for beyond in [&[3][..], &[0, 0], &[1, 0]] {
        assert_eq!(read(&body(&text), &request(beyond, 0, None, 50)), None, "{beyond:?}");
    }
}

#[test]
fn records_within_a_record_are_read_as_such() {
    let inner: Vec<usize> = (1000..1100).collect();
    let text = json!([{ "id": 1, "rows": inner }, 2]).to_string();
    let page = read(&body(&text), &request(&[0], 98, None, 100)).unwrap();
    assert_eq!((records(&page).0, records(&page).1, page.total), ("1098,1099", "/rows", 100));
}

#[test]
fn a_first_record_without_room_beside_what_is_around_goes_by_itself() {
    let text = json!({"head": "x".repeat(30), "rows": ["y".repeat(80), "z"]}).to_string();
    let page = read(&body(&text), &request(&[], 0, None, 100)).unwrap();
    assert_eq!((records(&page).0, page.next_offset), ("", Some(1)));
    assert_eq!(records(&page).3.unwrap().index, 0);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::from),
        "[a-c\"\\\\é😀]{0,40}".prop_map(Value::from),
        Just(Value::Null)
    ];
    leaf.prop_recursive(3, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::hash_map("[a-z/~]{1,3}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Reads all pages of a text and joins them.
fn whole(body: &str, within: &[usize], max: usize) -> Value {
    let (mut next, mut text, mut found, mut shell) = (Some(0), String::new(), Vec::new(), None);
    while let Some(offset) = next {
        let page = read(body, &request(within, offset, None, max)).unwrap();
        match page.content {
            Content::Text(part) => {
                text.push_str(&part);
            }
            Content::Records { joined, path, around, large } => {
                assert!(joined.chars().count() <= max + RECORDS_DEFAULT);
                if offset == 0 {
                    shell =
                        Some((path, around.map_or(Value::Null, |raw| serde_json::from_str(&raw).unwrap())));
                }
                found.extend(serde_json::from_str::<Vec<Value>>(&format!("[{joined}]")).unwrap());
                found.extend(large.map(|large| {
                    let deeper: Vec<usize> = within.iter().copied().chain([large.index]).collect();
                    whole(body, &deeper, max)
                }));
            }
        }
        assert!(page.next_offset.is_none_or(|next| next > offset));
        next = page.next_offset;
    }
    match shell {
        None => {
            serde_json::from_str(&serde_json::from_str::<String>(&format!("\"{text}\"")).unwrap()).unwrap()
        }
        Some((path, _)) if path.is_empty() => found.into(),
        Some((path, mut shell)) => {
            *shell.pointer_mut(&path).unwrap() = found.into();
            shell
        }
    }
}

proptest! {
    #[test]
    fn pages_are_the_whole(value in any_json(), max in 1..60_usize) {
        prop_assert_eq!(whole(&body(&value.to_string()), &[], max), value);
    }
}
