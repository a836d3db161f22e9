//! Commands and scripts, alone or in batches, each with its own result.

use std::sync::Arc;

use ::redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, Value, cmd, from_redis_value};

use super::{
    Redis,
    connection::RedisShared,
    dial::RedisLink,
    scripts::{Lua, ScriptCall},
};
use crate::Result;

/// Calls in one pipeline. More than that are sent as several pipelines, one after the other.
const BATCH: usize = 1000;

impl Redis {
    /// Whether it answers.
    pub async fn ping(&self) -> Result<()> {
        // With a key, so that a cluster that has lost its slots fails it.
        self.query::<Value>(cmd("EXISTS").arg(self.key("seq", "ping")).take()).await.map(drop)
    }

    /// A key of a kind, with the id as its hash tag.
    pub(super) fn key(&self, kind: &str, id: &str) -> String {
        format!("{}{kind}:{{{id}}}", self.shared.config.prefix)
    }

    pub(super) async fn query<T: FromRedisValue>(&self, command: Cmd) -> Result<T> {
        let results = self.shared.exchange(vec![command]).await?;
        self.shared.one(results)
    }

    /// Each command's own result, in order.
    pub(super) async fn query_each<T: FromRedisValue>(&self, commands: Vec<Cmd>) -> Result<Vec<T>> {
        let mut answers = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            for result in self.shared.exchange(commands.by_ref().take(BATCH).collect()).await? {
                answers.push(self.shared.read(result)?);
            }
        }
        Ok(answers)
    }

    pub(super) async fn eval<T: FromRedisValue>(&self, lua: &Lua, call: ScriptCall) -> Result<T> {
        let results = self.shared.eval_batch(lua, &[call]).await?;
        self.shared.one(results)
    }

    /// Runs one script many times, with one round trip for each batch.
    pub(super) async fn eval_each<T: FromRedisValue>(
        &self,
        lua: &Lua,
        calls: &[ScriptCall],
    ) -> Result<Vec<T>> {
        let mut answers = Vec::with_capacity(calls.len());
        for batch in calls.chunks(BATCH) {
            for result in self.shared.eval_batch(lua, batch).await? {
                answers.push(self.shared.read(result)?);
            }
        }
        Ok(answers)
    }

    /// Deletes every key that begins with the prefix and `kind`, on every master.
    pub(super) async fn delete_all(&self, kind: &str) -> Result<()> {
        let shared = &self.shared;
        let pattern = format!("{}*", escape_glob(&format!("{}{kind}", shared.config.prefix)));
        let masters = |mut link: RedisLink| async move { link.masters().await };
        for master in shared.with_link(masters).await?.0 {
            let mut cursor = 0u64;
            loop {
                let mut scan = cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(BATCH);
                let (page, _) =
                    shared.with_link(|mut link| async move { link.at(master, scan).await }).await?;
                let (next, keys): (u64, Vec<String>) = shared.read(Ok(page))?;
                let unlink = keys.iter().map(|key| cmd("UNLINK").arg(key).take()).collect();
                self.query_each::<Value>(unlink).await?;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Deletes everything derived from rows, for when the tables were filled by other means.
    /// Sessions stay.
    pub async fn forget_rows(&self) -> Result<()> {
        for kind in ["seq:", "inbox:", "block:"] {
            self.delete_all(kind).await?;
        }
        Ok(())
    }
}

impl RedisShared {
    fn read<T: FromRedisValue>(&self, result: RedisResult<Value>) -> Result<T> {
        let value = result.map_err(|e| self.unavailable(e))?;
        from_redis_value(value).map_err(|e| self.unavailable(format_args!("an unexpected answer: {e}")))
    }

    fn one<T: FromRedisValue>(&self, mut results: Vec<RedisResult<Value>>) -> Result<T> {
        match results.pop() {
            Some(result) => self.read(result),
            None => Err(self.unavailable("no answer")),
        }
    }

    /// Calls a script by its hash, and once more with its text where the server does not know it.
    async fn eval_batch(
        self: &Arc<Self>,
        lua: &Lua,
        calls: &[ScriptCall],
    ) -> Result<Vec<RedisResult<Value>>> {
        let by_hash = calls.iter().map(|call| call.by_hash(lua)).collect();
        let mut results = self.exchange(by_hash).await?;
        let no_script = ErrorKind::Server(ServerErrorKind::NoScript);
        let unknown: Vec<_> =
            (0..results.len()).filter(|n| matches!(&results[*n], Err(e) if e.kind() == no_script)).collect();
        if !unknown.is_empty() {
            let by_text = unknown.iter().map(|n| calls[*n].by_text(lua)).collect();
            for (n, result) in unknown.into_iter().zip(self.exchange(by_text).await?) {
                results[n] = result;
            }
        }
        Ok(results)
    }
}

/// A glob pattern that matches the text and nothing else.
fn escape_glob(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_nothing_but_the_prefix() {
        assert_eq!(escape_glob("a*b?[c]\\:"), "a\\*b\\?\\[c\\]\\\\:");
    }
}
