//! Headless Chromium over its DevTools protocol: one page, which a test leads somewhere and asks things.
//!
//! The protocol runs over two pipes, not over a port: the browser ends with them, and so with the test, however that
//! ends.

use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Longest wait for one answer, the first one after the start among them.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Quality of pictures in WebP, up to 100: text stays sharp.
const WEBP_QUALITY: u32 = 85;
/// Source of axe-core, which audits pages for people who use them without eyes or without a mouse.
const AXE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/node_modules/axe-core/axe.min.js");
/// Starts the program with the pipes where it looks for them.
const LAUNCH: &str = r#"exec chromium "$@" 3<&0 4>&1 </dev/null >/dev/null"#;
/// Flags of the start. The last one keeps it off every network.
const FLAGS: [&str; 11] = [
    "--remote-debugging-pipe",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// The running browser with its page; ends when dropped.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    asked: u64,
    /// Loads of documents that have ended.
    loaded: HashSet<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser with an empty profile. Scripts of pages are off.
    pub async fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", LAUNCH, "chromium"]).args(FLAGS).arg("about:blank");
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let loaded = HashSet::new();
        let mut browser =
            Browser { child, input, output, session: None, asked: 0, loaded, _profile: profile };
        let opened = browser.ask("Target.createTarget", json!({"url": "about:blank"})).await;
        let target = json!({"targetId": opened["targetId"], "flatten": true});
        let attached = browser.ask("Target.attachToTarget", target).await;
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.ask("Page.enable", json!({})).await;
        browser.ask("Page.setLifecycleEventsEnabled", json!({"enabled": true})).await;
        browser.ask("Emulation.setFocusEmulationEnabled", json!({"enabled": true})).await;
        // of pages; what a test evaluates runs
        browser.ask("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        browser
    }

    /// Lets scripts of pages run, in those that are opened from now on.
    pub async fn allow_scripts(&mut self) {
        self.ask("Emulation.setScriptExecutionDisabled", json!({"value": false})).await;
    }

    /// Opens a page, and waits until it is loaded.
    pub async fn open(&mut self, url: &str) {
        let opened = self.ask("Page.navigate", json!({ "url": url })).await;
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        let loader = opened["loaderId"].as_str().unwrap().to_owned();
        while !self.loaded.remove(&loader) {
            self.read().await;
        }
    }

    /// Runs a script that leads to another page, and waits until that is loaded.
    pub async fn follow(&mut self, script: &str) {
        self.loaded.clear();
        self.evaluate(script).await;
        self.land().await;
    }

    /// Presses a key that leads to another page, and waits until that is loaded.
    pub async fn follow_key(&mut self, key: &str) {
        self.loaded.clear();
        self.press(key).await;
        self.land().await;
    }

    /// Loads the page again as the button of the browser does, and waits until it is loaded.
    pub async fn reload(&mut self) {
        self.loaded.clear();
        self.ask("Page.reload", json!({})).await;
        self.land().await;
    }

    async fn land(&mut self) {
        while self.loaded.is_empty() {
            self.read().await;
        }
        self.loaded.clear();
    }

    /// Runs a script in the page, and returns what it evaluates to.
    pub async fn evaluate(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", asked).await;
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// Gives the window another width, in CSS pixels.
    pub async fn resize(&mut self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size).await;
        // as on a phone, where they take no room
        self.ask("Emulation.setScrollbarsHidden", json!({"hidden": true})).await;
    }

    /// Sets the time zone of the visitor, such as `Asia/Kolkata`.
    pub async fn set_zone(&mut self, zone: &str) {
        self.ask("Emulation.setTimezoneOverride", json!({ "timezoneId": zone })).await;
    }

    /// Chooses the system's colours: `light` or `dark`.
    pub async fn set_scheme(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.ask("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
    }

    /// Writes a picture of the whole page into a file, whose name ends with the format: `png` or `webp`.
    pub async fn picture(&mut self, path: &Path) {
        self.settle().await;
        let size = self.ask("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let format = path.extension().and_then(|end| end.to_str()).unwrap();
        let mut asked = json!({"format": format, "captureBeyondViewport": true, "clip": clip});
        if format == "webp" {
            asked["quality"] = json!(WEBP_QUALITY);
        }
        let taken = self.ask("Page.captureScreenshot", asked).await;
        let bytes = STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Ends the animations of the page: buttons of cards are pale at first.
    async fn settle(&mut self) {
        self.evaluate("document.getAnimations().forEach(moving => moving.finish())").await;
    }

    /// Runs axe-core in the page. Returns what it finds against the page: rule and element.
    pub async fn audit(&mut self) -> Vec<String> {
        self.settle().await;
        self.ask("Emulation.setScriptExecutionDisabled", json!({"value": false})).await;
        let source = std::fs::read_to_string(AXE).expect("axe-core (npm ci in tests/clients)");
        let loads = json!({"expression": format!("{source}; typeof axe.run"), "returnByValue": true});
        assert_eq!(self.ask("Runtime.evaluate", loads).await["result"]["value"], "function");
        let script = "axe.run(document).then(found => JSON.stringify(found.violations.flatMap(rule =>
            rule.nodes.map(node => `${rule.id}: ${node.html} ${node.failureSummary}`))))";
        let asked = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", asked).await;
        self.ask("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        serde_json::from_str(answer["result"]["value"].as_str().expect("a list")).unwrap()
    }

    /// Puts a cookie there as the server at this address would, for TLS or this machine alone.
    pub async fn set_cookie(&mut self, url: &str, name: &str, value: &str) {
        let cookie =
            json!({"url": url, "name": name, "value": value, "path": "/", "secure": true, "httpOnly": true});
        let set = self.ask("Network.setCookie", cookie).await;
        assert_eq!(set["success"], true, "{set}");
    }

    /// Types a text where the cursor is.
    pub async fn enter(&mut self, text: &str) {
        self.ask("Input.insertText", json!({ "text": text })).await;
    }

    /// Types a text into a field in the place of what is there. `field` is a selector.
    pub async fn fill(&mut self, field: &str, text: &str) {
        self.evaluate(&format!("document.querySelector({field:?}).select()")).await;
        self.enter(text).await;
    }

    /// Presses a key and lets it go: a letter, `Enter` or `Tab`.
    pub async fn press(&mut self, key: &str) {
        let (text, code) = match key {
            "Enter" => ("\r", 13),
            "Tab" => ("", 9),
            _ => (key, 0),
        };
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            let event = json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
            self.ask("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Presses the mouse at a place of the window, in CSS pixels, and lets it go.
    pub async fn click_at(&mut self, (x, y): (f64, f64)) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", event).await;
        }
    }

    /// The same, where that leads to another page; waits until it is loaded.
    pub async fn follow_click_at(&mut self, place: (f64, f64)) {
        self.loaded.clear();
        self.click_at(place).await;
        self.land().await;
    }

    /// Ends the browser, and waits until it has.
    pub async fn close(mut self) {
        drop(self.input);
        timeout(WAIT_MAX, self.child.wait()).await.expect("an end").unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).await.unwrap();
        loop {
            let read = self.read().await;
            if read["id"] == self.asked {
                assert!(read["error"].is_null(), "{method}: {read}");
                return read["result"].clone();
            }
        }
    }

    /// Reads the next message.
    async fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = timeout(WAIT_MAX, self.output.read_until(0, &mut bytes)).await.expect("an answer in time");
        assert!(read.unwrap() > 1, "Chromium has ended; is it there? (apt-get install chromium)");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        if message["method"] == "Page.lifecycleEvent" && message["params"]["name"] == "load" {
            self.loaded.insert(message["params"]["loaderId"].as_str().unwrap().to_owned());
        }
        message
    }
}
