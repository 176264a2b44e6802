package lorad

import java.io.File
import org.json.JSONObject

/** In place of a store that encrypts: a file, which an app must not use. */
class FileStore(private val file: File) : CredentialStore {
    override fun load(): String? = if (file.exists()) file.readText() else null

    override fun save(credentials: String) = file.writeText(credentials)
}

/** What the page for app developers shows: from the code to the adapter's answer. */
fun sample(port: Int, code: String, store: CredentialStore) {
    if (store.load() == null) LoradClient.pair(port, code, store) // as `lorad pair` shows them
    val lorad = LoradClient(store)
    lorad.createAdapter("notices", listOf("now", "later"))
    lorad.postExamples(
        "notices",
        listOf(
            JSONObject(mapOf("input" to "Lunch on Friday?", "label" to "later", "external_id" to "msg-1")),
            JSONObject(mapOf("input" to "The train leaves in 10 minutes", "label" to "now", "split" to "train")),
        ),
    )
    println(lorad.adapter("notices").getJSONObject("examples"))

    val run = lorad.train("notices", JSONObject().put("training", JSONObject().put("steps", 5)))
    lorad.watch(run.getLong("id")) { event, data -> println("$event ${data.opt("status")}") }
    println(lorad.run(run.getLong("id")).getInt("version"))

    val said = lorad.predict("notices", listOf("Are you there now?", "See you later"), prior = false)
    val first = said.getJSONArray("predictions").getJSONObject(0)
    println("${first.getString("label")} ${first.getDouble("probability")}")

    println(lorad.deleteExample("notices", "msg-1").getString("erased"))
}
