package lorad

import java.io.File
import org.json.JSONArray
import org.json.JSONObject

/** Does what each line of standard input asks, a JSON object, and says on one line what came of it. */
fun main() {
    val clients = mutableMapOf<String, LoradClient>()
    for (line in generateSequence(::readlnOrNull)) {
        val asked = JSONObject(line)
        val said = try {
            JSONObject().put("value", done(asked, clients))
        } catch (error: LoradException) {
            val errors = JSONArray(error.errors.map { JSONArray(listOf(it.field, it.message)) })
            JSONObject().put("error", "LoradException").put("status", error.status).put("detail", error.detail)
                .put("errors", errors).putOpt("retry_after", error.retryAfterSeconds)
        } catch (error: Exception) {
            JSONObject().put("error", error.javaClass.simpleName).put("detail", error.message)
        }
        println(said)
    }
}

private fun done(asked: JSONObject, clients: MutableMap<String, LoradClient>): Any {
    val kept = asked.getString("kept")
    val store = FileStore(File(kept))
    if (asked.getString("do") == "sample") {
        sample(asked.getInt("port"), asked.getString("code"), store)
        return true
    }
    if (asked.getString("do") == "pair") {
        LoradClient.pair(asked.getInt("port"), asked.getString("code"), store)
        return true
    }
    val lorad = clients.getOrPut(kept) {
        LoradClient(store, asked.optDouble("patience", 0.01), asked.optInt("attempts", 4), timeoutSeconds = 1)
    }
    return when (asked.getString("do")) {
        "request" -> lorad.request(asked.getString("method"), asked.getString("path"), asked.optJSONObject("body"))
        "watch" -> JSONArray().also { events ->
            lorad.watch(asked.getLong("run")) { event, data -> events.put(JSONArray(listOf(event, data))) }
        }
        "post" -> lorad.postExamples("inbox", listOf(JSONObject(mapOf("input" to asked.getString("text")))))
        "delete all" -> lorad.deleteAllExamples("inbox")
        else -> error("unknown: $asked")
    }
}
