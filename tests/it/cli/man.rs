//! Manual pages.

use std::fs;

use crate::support::cli_with;

#[tokio::test]
async fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    cli_with(&[], &["man", pages.to_str().unwrap()]).await.ok();
    let page = fs::read_to_string(pages.join("mcpproxy-key-rotate.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("overlap"), "{page}");
    for page in ["mcpproxy.1", "mcpproxy-serve.1", "mcpproxy-connect.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
    // what is for the gateway itself is nobody's command
    let hidden = |name: &str| name.contains("stdio") || name.contains("-man");
    let names: Vec<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| hidden(name)), "{names:?}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    cli_with(&[], &["man", file.to_str().unwrap()]).await.failed(1, "give a folder that is yours");
}
