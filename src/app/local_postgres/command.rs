//! Execution of one program to its end.

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::error::LocalPostgresError;

/// Most characters of a program's output that an error shows.
const OUTPUT_CHARS_MAX: usize = 600;
/// Longest wait for a program that only prints.
pub(super) const QUICK_WAIT: Duration = Duration::from_secs(10);

/// Runs a program to its end, at most for `wait`, and returns its standard output. If the program fails, the error
/// contains the end of its error output.
pub(super) async fn run(
    program: &'static str,
    mut command: Command,
    input: &str,
    wait: Duration,
) -> Result<String, LocalPostgresError> {
    let failed = |output: String| LocalPostgresError::Program { program, output };
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| failed(error.to_string()))?;
    let mut stdin = child.stdin.take();
    let work = async {
        if let Some(stdin) = &mut stdin {
            stdin.write_all(input.as_bytes()).await?;
        }
        drop(stdin);
        child.wait_with_output().await
    };
    let output = match timeout(wait, work).await {
        Ok(output) => output.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("it took more than {} s", wait.as_secs()))),
    };
    if !output.status.success() {
        return Err(failed(format!("{} ({})", tail(&output.stderr), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the end of a program's output, on one line.
pub(super) fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let skip = line.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
    line.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failing_program_is_reported_with_the_end_of_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat >&2; exit 3"]);
        let error =
            run("sh", command, &format!("{}the end", "x".repeat(2000)), QUICK_WAIT).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the end") && text.len() < 800, "{text}");
    }
}
